"""What Spark's API for Python sources and sinks allows: a source that has its Arrow batches ready, and a sink that only
takes them: what the API allows with batches of this size, whatever the broker."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pylog.connector.spark.schema import source_schema

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "ceiling"
_BATCH_ROWS = 10_000  # as the connector's


class CeilingDataSource(DataSource):
    """Options: `rows`, `valueBytes` and `partitions` of what is read, `maxOffsetsPerTrigger`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return _StreamWriter()


class _Ready:
    """Rows that are there before anybody asks for them."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = options
        self.names = tuple(schema.names)
        self.rows = int(options["rows"])

    def split(self, rows: int) -> list[InputPartition]:
        count = int(self.options["partitions"])
        return [InputPartition(rows * (index + 1) // count - rows * index // count) for index in range(count)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        batch, left = _batch(self.names, int(self.options["valueBytes"])), partition.value
        while left:
            yield batch.slice(0, left) if left < batch.num_rows else batch
            left -= min(left, batch.num_rows)


class _Reader(_Ready, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return self.split(self.rows)


class _StreamReader(_Ready, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(int(self.options["maxOffsetsPerTrigger"]))

    def prepareForTriggerAvailableNow(self) -> None:
        """All of it is available."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        assert isinstance(limit, ReadMaxRows)
        return {"row": min(self.rows, start["row"] + limit.max_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self.split(end["row"] - start["row"])


@lru_cache
def _batch(names: tuple[str, ...], value_bytes: int) -> "pa.RecordBatch":
    import pyarrow as pa

    columns: dict[str, Any] = {
        "key": pa.nulls(_BATCH_ROWS, pa.binary()),
        "value": pa.array([b"x" * value_bytes] * _BATCH_ROWS, pa.binary()),
        "topic": pa.array(["a-topic"] * _BATCH_ROWS, pa.string()),
        "partition": pa.array([0] * _BATCH_ROWS, pa.int32()),
        "offset": pa.array(range(_BATCH_ROWS), pa.int64()),
        "timestamp": pa.array(range(_BATCH_ROWS), pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * _BATCH_ROWS, pa.int32()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


def _drain(batches: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _drain(iterator)


class _StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _drain(iterator)
