"""Spark's own Kafka connector, on the JVM, reads what ours wrote and writes what ours reads."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

HEADERS = "headers array<struct<key:string,value:binary>>"
ROWS = [
    ("a", "1", [("h", b"x"), ("g", None)]),
    ("", "", None),
    (None, "2", None),
    ("c", None, None),
    *[(f"key-{number}", f"value-{number}", None) for number in range(300)],
]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
FORMATS = ["pylog", "kafka"]


@pytest.mark.parametrize("writer", FORMATS)
def test_both_connectors_read_the_same_rows_whoever_wrote_them(
    spark_kafka: "SparkSession",
    new_topic: Callable[..., str],
    write: Callable[..., None],
    read: "Callable[..., DataFrame]",
    writer: str,
) -> None:
    topic = new_topic(partitions=3)
    rows = spark_kafka.createDataFrame(ROWS, f"key string, value string, {HEADERS}")
    for codec in CODECS:
        write(rows, topic, format=writer, **{"kafka.compression.type": codec})
    ours, theirs = (read(topic, format=reader, includeHeaders="true") for reader in FORMATS)
    assert ours.schema == theirs.schema
    found = ours.orderBy("partition", "offset").collect()
    assert len(found) == len(ROWS) * len(CODECS)
    assert found == theirs.orderBy("partition", "offset").collect()


def test_both_connectors_put_a_key_into_the_same_partition(
    spark_kafka: "SparkSession",
    new_topic: Callable[..., str],
    write: Callable[..., None],
    read: "Callable[..., DataFrame]",
) -> None:
    topics = [new_topic(partitions=5) for _ in FORMATS]
    rows = spark_kafka.range(1000).selectExpr("concat('k', id * 7919) key", "'v' value")
    for topic, writer in zip(topics, FORMATS, strict=True):
        write(rows, topic, format=writer)
    ours, theirs = (
        {bytes(key): partition for key, partition in read(topic).select("key", "partition").collect()}
        for topic in topics
    )
    assert len(ours) == 1000
    assert ours == theirs
