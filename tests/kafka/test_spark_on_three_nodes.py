"""A Kafka of three nodes that are restarted one after the other, and killed: a stream goes on, and every record that
was written is read once; a write goes on, and every row stands there once and in order."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka_nodes import COUNT, KafkaNodes
from tests.support.writes import assert_every_row_once_and_keys_in_order, write_through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "rolling"
PARTITIONS = 6
DEADLINE_S = 180
WRITE_SECONDS_MIN = 60  # longer than it takes a node to be away, back and in sync


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaNodes]:
    with KafkaNodes() as nodes:
        yield nodes


class Writing:
    """Numbered records, one after the other, until it is told to end; `count` of them were taken by the brokers."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._ended = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            self._producer.produce(TOPIC, b"%d" % number, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.002)
        assert self._producer.flush(DEADLINE_S) == 0

    def _delivered(self, error: object, _: object) -> None:
        assert error is None
        self.count += 1

    def __enter__(self) -> "Writing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def eventually(is_so: Callable[[], bool], query: "StreamingQuery | None" = None) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        if query is not None and (failure := query.exception()) is not None:
            raise failure
        assert time.monotonic() < deadline
        time.sleep(0.2)


def new_topic(kafka: KafkaNodes, topic: str) -> Callable[[], bool]:
    """A topic that is in sync, and whether it is so later."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, COUNT)])[topic].result(60)

    def is_in_sync() -> bool:
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
        return len(partitions) == PARTITIONS and all(len(one.isrs) == COUNT for one in partitions)

    eventually(is_in_sync)
    return is_in_sync


@pytest.mark.timeout(900)
def test_a_stream_goes_on_while_nodes_are_restarted_and_killed(
    spark: "SparkSession", kafka: KafkaNodes, tmp_path: Path
) -> None:
    is_in_sync = new_topic(kafka, TOPIC)

    def read() -> int:
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    rows = spark.readStream.format("pylog").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    rows = rows.options(subscribe=TOPIC, startingOffsets="earliest").load()
    writer = rows.selectExpr("cast(value as string) value").writeStream.format("parquet")
    writer = writer.option("path", str(tmp_path / "rows")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        with Writing(kafka.bootstrap_servers) as writing:
            for node, end in [*((node, node.stop) for node in kafka.nodes), (kafka.nodes[1], kafka.nodes[1].kill)]:
                eventually(is_in_sync, query)
                before = read()
                end()
                eventually(lambda before=before: read() > before, query)  # type: ignore[misc]
                node.start()
        eventually(lambda: read() >= writing.count, query)
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.numRecentProgressUpdates")
    found = Counter(
        int(row.value) for row in spark.read.schema("value string").parquet(str(tmp_path / "rows")).collect()
    )
    assert found == Counter(range(writing.count))


@pytest.mark.timeout(900)
def test_a_write_goes_on_while_leaders_move(spark: "SparkSession", kafka: KafkaNodes) -> None:
    is_in_sync = new_topic(kafka, "written")

    killed, restarted = kafka.nodes[:2]  # each leads a third of the partitions

    def come_back() -> None:
        killed.start()
        eventually(is_in_sync)

    outages = [(killed.kill, come_back), (restarted.stop, restarted.start)]
    rows = write_through(spark, kafka.bootstrap_servers, "written", outages, WRITE_SECONDS_MIN)
    assert_every_row_once_and_keys_in_order(rows)
