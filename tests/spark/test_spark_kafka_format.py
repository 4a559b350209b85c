"""Spark's own `format("kafka")`, source and sink, in batches and streams: a broker that it takes for Kafka."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

NOW_MS = 1_700_000_000_000
STREAM_SECONDS_MAX = 120
KEPT = {"retention.ms": "-1"}  # though the records are old


@pytest.fixture
def produce_at(bootstrap_servers: str) -> Callable[..., None]:
    """`produce_at(topic, partition, count)`: a record a second from `NOW_MS` on."""
    from confluent_kafka import Producer

    def produce_at(topic: str, partition: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers})
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=NOW_MS + 1000 * number)
        assert producer.flush(30) == 0

    return produce_at


def rows_of(frame: "DataFrame") -> set[tuple[int, int]]:
    return {(row.partition, row.offset) for row in frame.select("partition", "offset").collect()}


def places(ranges: dict[int, range]) -> set[tuple[int, int]]:
    return {(partition, offset) for partition, offsets in ranges.items() for offset in offsets}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({}, {0: range(10), 1: range(5)}, id="everything"),
        pytest.param(
            {"startingOffsets": '{"T": {"0": 4, "1": -2}}', "endingOffsets": '{"T": {"0": 8, "1": -1}}'},
            {0: range(4, 8), 1: range(5)},
            id="by offset",
        ),
        pytest.param(
            {"startingTimestamp": str(NOW_MS + 2500), "endingTimestamp": str(NOW_MS + 7000)},
            {0: range(3, 7), 1: range(3, 5)},
            id="by time",
        ),
        pytest.param(
            {"startingOffsetsByTimestamp": json.dumps({"T": {"0": NOW_MS + 9000, "1": NOW_MS}})},
            {0: range(9, 10), 1: range(5)},
            id="by time, each its own",
        ),
        pytest.param({"minPartitions": "7"}, {0: range(10), 1: range(5)}, id="in more pieces than partitions"),
        pytest.param(
            {"kafka.isolation.level": "read_committed"}, {0: range(10), 1: range(5)}, id="only what is committed"
        ),
    ],
)
def test_a_batch_has_the_records_between_its_offsets(
    spark_kafka: "SparkSession",
    read: "Callable[..., DataFrame]",
    new_topic: Callable[..., str],
    produce_at: Callable[..., None],
    options: dict[str, str],
    wanted: dict[int, range],
) -> None:
    topic = new_topic(partitions=2, **KEPT)
    produce_at(topic, 0, 10)
    produce_at(topic, 1, 5)
    chosen = {name: value.replace('"T"', f'"{topic}"') for name, value in options.items()}
    assert rows_of(read(topic, format="kafka", **chosen)) == places(wanted)


@pytest.mark.parametrize("how", ["subscribePattern", "assign"])
def test_topics_are_chosen_by_pattern_and_by_partition(
    spark_kafka: "SparkSession",
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    produce_at: Callable[..., None],
    how: str,
) -> None:
    topic = new_topic(partitions=2, **KEPT)
    produce_at(topic, 0, 3)
    produce_at(topic, 1, 4)
    choice = f"{topic[:-2]}.." if how == "subscribePattern" else json.dumps({topic: [1]})
    options = {"kafka.bootstrap.servers": bootstrap_servers, how: choice}
    frame = spark_kafka.read.format("kafka").options(**options).load()
    wanted = {1: range(4)} if how == "assign" else {0: range(3), 1: range(4)}
    assert rows_of(frame) == places(wanted)


def test_a_stream_reads_what_a_stream_writes_and_goes_on_behind_its_checkpoint(
    spark_kafka: "SparkSession",
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    write: Callable[..., None],
    read: "Callable[..., DataFrame]",
    tmp_path: Path,
) -> None:
    source, sink = new_topic(partitions=3), new_topic(partitions=2)
    servers = {"kafka.bootstrap.servers": bootstrap_servers}

    def run() -> Any:
        """All that is there now, in batches of a hundred at most."""
        stream = (
            spark_kafka.readStream.format("kafka")
            .options(**servers, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="100")
            .load()
        )
        query = (
            stream.select("key", "value")
            .writeStream.format("kafka")
            .options(**servers, topic=sink, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STREAM_SECONDS_MAX)
        return query

    for number, first in enumerate((0, 250)):
        rows = spark_kafka.range(first, first + 250).selectExpr(
            "cast(id % 7 as string) key", "cast(id as string) value"
        )
        write(rows, source, format="kafka")
        query = run()
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == 250
        assert len([one for one in query.recentProgress if one["numInputRows"]]) >= 3
        found = (
            read(sink, format="kafka").selectExpr("cast(value as string) value", "cast(key as string) key").collect()
        )
        assert sorted(int(row.value) for row in found) == list(range(250 * (number + 1)))
        assert all(int(row.value) % 7 == int(row.key) for row in found)


def test_a_stream_waits_for_records_and_sees_those_that_come(
    spark_kafka: "SparkSession", bootstrap_servers: str, new_topic: Callable[..., str], produce_at: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2, **KEPT)
    name = topic.replace("-", "_")
    query = (
        spark_kafka.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap_servers}, subscribe=topic, startingOffsets="latest")
        .load()
        .writeStream.format("memory")
        .queryName(name)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        deadline = time.monotonic() + STREAM_SECONDS_MAX
        while not query.lastProgress:  # else "latest" could still be behind the records
            assert time.monotonic() < deadline, query.exception()
            time.sleep(0.05)
        for round_number in range(1, 4):
            produce_at(topic, 0, 10)
            produce_at(topic, 1, 10)
            while spark_kafka.table(name).count() < 20 * round_number:
                assert time.monotonic() < deadline, query.exception()
                time.sleep(0.05)
        assert rows_of(spark_kafka.table(name)) == places({0: range(30), 1: range(30)})
        assert spark_kafka.table(name).count() == 60
    finally:
        query.stop()
