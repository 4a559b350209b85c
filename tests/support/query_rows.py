"""Queries of Spark that are run several times on one checkpoint, and what they read in all."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Sink = Callable[["DataFrame", int], None]

DEADLINE_S = 120
FORMATS = pytest.mark.parametrize("format", ["pylog", "kafka"])  # Spark's own connector does the same
FRESH = {"kafka.metadata.max.age.ms": "100", "fetchOffset.retryIntervalMs": "100"}


class Rows:
    """Where queries of one test put their rows: files, whose sink is exactly-once, so that what is read twice shows."""

    def __init__(self, spark: "SparkSession", servers: str, path: Path) -> None:
        self._spark, self._servers, self._path = spark, servers, path
        self.is_shared = False  # whether both formats go on with one checkpoint
        self.shown = "concat(topic, ':', cast(value as string))"

    def _folder(self, what: str, format: str) -> str:
        return str(self._path / (what if self.is_shared else f"{what}-{format}"))

    def start(
        self,
        trigger: dict[str, Any] | None = None,
        format: str = "pylog",
        sink: Sink | None = None,
        **options: str,
    ) -> "StreamingQuery":
        """A run of the test's query: one checkpoint for all of them, per format. With `sink` there are no files."""
        stream = self._spark.readStream.format(format).option("kafka.bootstrap.servers", self._servers)
        rows = stream.options(**({"startingOffsets": "earliest"} | options)).load()
        writer = rows.selectExpr(f"{self.shown} value").writeStream
        if sink is not None:
            writer = writer.foreachBatch(sink)
        else:
            writer = writer.format("parquet").option("path", self._folder("rows", format))
        writer = writer.option("checkpointLocation", self._folder("checkpoint", format))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(
        self,
        trigger: dict[str, Any] | None = None,
        format: str = "pylog",
        sink: Sink | None = None,
        **options: str,
    ) -> list[int]:
        """The rows of each batch of a run that ends by itself."""
        query = self.start(trigger, format, sink, **options)
        assert query.awaitTermination(DEADLINE_S)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def failure(self, format: str = "pylog", sink: Sink | None = None, **options: str) -> str:
        query = self.start(None, format, sink, **options)
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(DEADLINE_S)
        return str(caught.value)

    def found(self, format: str = "pylog") -> Counter[str]:
        return Counter(row["value"] for row in self._found(format).collect())

    def tasks(self, format: str = "pylog") -> int:
        """How many of them there were that had rows: each wrote a file."""
        return self._found(format).selectExpr("input_file_name()").distinct().count()

    def _found(self, format: str) -> "DataFrame":
        return self._spark.read.schema("value string").parquet(self._folder("rows", format))


def failing_sink(batch: object, number: int) -> None:
    raise RuntimeError("this sink fails")


def records(topic: str, partition: int, numbers: Iterable[int]) -> Counter[str]:
    return Counter(f"{topic}:{partition}/{number}" for number in numbers)


def eventually(is_so: Callable[[], bool], query: "StreamingQuery") -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        if (failure := query.exception()) is not None:
            raise failure
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)
