"""What Spark's planner asks of a stream, asked directly."""

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from pylog.connector.spark.offsets import NOTE
from pylog.connector.spark.option_rows import Taker
from pylog.connector.spark.options import source_options
from pylog.connector.spark.plan import OffsetRange
from pylog.connector.spark.schema import source_schema
from pylog.connector.spark.stream_source import StreamReader

ALL = ReadAllAvailable()
Json = dict[str, Any]
NewReader = Callable[..., StreamReader]


def stream_reader(bootstrap_servers: str, options: dict[str, str]) -> StreamReader:
    """One that believes nothing it has heard before, so that what changes is seen at once."""
    given = {"kafka.bootstrap.servers": bootstrap_servers, "kafka.metadata.max.age.ms": "0"}
    given |= {"fetchOffset.retryIntervalMs": "100", "startingOffsets": "earliest"}
    return StreamReader(source_options(given | options, Taker.STREAM), source_schema(False))


def read_first(reader: StreamReader) -> Json:
    """The offset that ends a new query's first batch, as the checkpoint has it."""
    end: Json = reader.latestOffset(reader.initialOffset(), ALL)
    return end


def planned(reader: StreamReader, start: Json, end: Json) -> list[OffsetRange]:
    return [partition.value for partition in reader.partitions(start, end)]


def plain(offset: Json) -> Json:
    """As Spark's connector would write it."""
    return {topic: partitions for topic, partitions in offset.items() if topic != NOTE}


def looked(reader: StreamReader, start: Json, limit: ReadLimit = ALL) -> Json:
    return plain(reader.latestOffset(start, limit))
