"""Queries that are stopped and resumed from their checkpoints lose and repeat nothing; groups follow them."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pylog.connector.client.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.connector

Read = Callable[..., "DataFrame"]
NewTopic = Callable[..., str]
Produce = Callable[..., None]
Copy = Callable[..., "StreamingQuery"]


@pytest.fixture
def copy(spark: "SparkSession", bootstrap_servers: str, tmp_path: Path) -> "Copy":
    """`copy(source, target)` starts a query that copies one topic to another, with one checkpoint for all its runs."""

    def copy(source: str, target: str, trigger: dict[str, Any] | None = None, **options: str) -> "StreamingQuery":
        stream = spark.readStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
        rows = stream.option("subscribe", source).options(**({"startingOffsets": "earliest"} | options)).load()
        writer = rows.select("value").writeStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    return copy


def finished(query: "StreamingQuery") -> list[int]:
    """The rows of each of its batches."""
    assert query.awaitTermination(120)
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def values(rows: "DataFrame") -> Counter[str]:
    return Counter(bytes(row["value"]).decode() for row in rows.select("value").collect())


def expected(counts: dict[int, int]) -> Counter[str]:
    return Counter(f"{partition}/{number}" for partition, count in counts.items() for number in range(count))


def test_available_now_reads_what_is_new_in_limited_batches_and_commits_the_last(
    new_topic: NewTopic, produce: Produce, read: Read, copy: Copy, cluster: Cluster, bootstrap_servers: str
) -> None:
    source, target = new_topic(partitions=2), new_topic(partitions=2)
    options = {"maxOffsetsPerTrigger": "20", "kafka.group.id": f"copies-{source}"}
    produce(source, 0, 30)
    produce(source, 1, 10)
    assert finished(copy(source, target, **options)) == [20, 20]
    assert cluster.committed_offsets(f"copies-{source}") == {(source, 0): 30, (source, 1): 10}

    produce(source, 1, 15, first=10)
    assert finished(copy(source, target, **options)) == [15]
    assert finished(copy(source, target, **options)) == []
    assert values(read(target)) == expected({0: 30, 1: 25})

    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": f"copies-{source}"})
    committed = consumer.committed([TopicPartition(source, 0), TopicPartition(source, 1)], timeout=30)
    consumer.close()
    assert [found.offset for found in committed] == [30, 25]


def test_a_running_query_that_is_stopped_goes_on_where_it_was(
    spark: "SparkSession", new_topic: NewTopic, produce: Produce, bootstrap_servers: str, tmp_path: Path, either: str
) -> None:
    """Into files, whose sink is exactly-once: what is read twice or not at all would show."""
    source = new_topic(partitions=2)
    produce(source, 0, 400)
    stream = spark.readStream.format(either).option("kafka.bootstrap.servers", bootstrap_servers)
    stream = stream.option("subscribe", source).option("startingOffsets", "earliest")

    def start(rows_max: str) -> "StreamingQuery":
        writer = stream.option("maxOffsetsPerTrigger", rows_max).load().select("value").writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "rows")).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        return writer.trigger(processingTime="0 seconds").start()

    query = start("50")
    while len(query.recentProgress) < 2 and query.isActive:
        query.awaitTermination(0.05)
    query.stop()  # in the middle: there are eight batches
    assert query.exception() is None
    produce(source, 1, 100)
    query = start("200")
    query.processAllAvailable()
    produce(source, 1, 50, first=100)
    query.processAllAvailable()
    query.stop()
    assert query.exception() is None
    assert values(spark.read.parquet(str(tmp_path / "rows"))) == expected({0: 400, 1: 150})


def test_values_of_a_megabyte_are_streamed_whole(
    spark: "SparkSession", new_topic: NewTopic, bootstrap_servers: str, tmp_path: Path, either: str
) -> None:
    from confluent_kafka import Producer

    source = new_topic()
    values = [number.to_bytes(4) * 250_000 for number in range(30)]
    producer = Producer({"bootstrap.servers": bootstrap_servers, "message.max.bytes": 1_048_588})
    for value in values:
        producer.produce(source, value)
    assert producer.flush(30) == 0
    stream = spark.readStream.format(either).option("kafka.bootstrap.servers", bootstrap_servers)
    rows = stream.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="8").load()
    writer = rows.selectExpr("offset", "md5(value) digest").writeStream.format("parquet")
    writer = writer.option("path", str(tmp_path / "rows")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert finished(writer.trigger(availableNow=True).start()) == [8, 8, 8, 6]
    found = spark.read.schema("offset long, digest string").parquet(str(tmp_path / "rows")).orderBy("offset").collect()
    assert [tuple(row) for row in found] == [
        (offset, hashlib.md5(value).hexdigest()) for offset, value in enumerate(values)
    ]


def test_a_query_from_latest_reads_what_comes_after_it_began_and_reports_its_lag(
    new_topic: NewTopic, produce: Produce, read: Read, copy: Copy
) -> None:
    source, target = new_topic(), new_topic()
    produce(source, 0, 5)
    assert finished(copy(source, target, startingOffsets="latest")) == []
    produce(source, 0, 5, first=5)
    query = copy(source, target, startingOffsets="latest")
    assert finished(query) == [5]
    progress = next(progress for progress in query.recentProgress if progress["numInputRows"])["sources"][0]
    assert progress["latestOffset"] == json.dumps({source: {"0": 10}})
    assert json.loads(progress["endOffset"])[source] == {"0": 10}
    assert values(read(target)) == Counter(f"0/{number}" for number in range(5, 10))


def test_once_takes_everything_at_once(new_topic: NewTopic, produce: Produce, copy: Copy) -> None:
    source, target = new_topic(), new_topic()
    produce(source, 0, 30)
    assert finished(copy(source, target, {"once": True}, maxOffsetsPerTrigger="10")) == [30]


def test_complete_mode_appends_each_result(
    spark: "SparkSession", new_topic: NewTopic, produce: Produce, read: Read, bootstrap_servers: str, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    produce(source, 0, 6)
    stream = spark.readStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
    rows = stream.option("subscribe", source).option("startingOffsets", "earliest").load()
    counted = rows.groupBy("topic").count().selectExpr("cast(count as string) value")
    writer = counted.writeStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
    writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
    for more in (0, 3):
        produce(source, 0, more)
        finished(writer.outputMode("complete").trigger(availableNow=True).start())
    assert values(read(target)) == Counter(["6", "9"])
