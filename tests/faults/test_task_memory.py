"""A task streams: its memory stays under the bound of docs/source.md, whatever its range, its codec, its values.

A gigabyte here; with more rounds, five."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.producer import RecordProducer
from pylog.storage import codecs
from pylog.storage.records import Record, encode_batch
from tests.support.spark_workers import forget_peaks, most_resident_bytes, python_processes, workers_of_ones_own

pytestmark = pytest.mark.connector

GIGABYTES = 5 if int(os.environ.get("PYLOG_FAULT_ROUNDS", "0")) > 1 else 1
FETCH_BYTES = 4 << 20  # max.partition.fetch.bytes, unless a batch alone is larger
ARROW_BYTES = 16 << 20  # of an Arrow batch, unless a record alone is larger
SLACK_BYTES = 16 << 20  # what allocators keep


def bound_bytes(batch_bytes: int, plain_bytes: int) -> int:
    """As docs/source.md states it: one fetch, two times what is unfolded together, two Arrow batches."""
    return max(FETCH_BYTES, batch_bytes) + 2 * max(FETCH_BYTES, plain_bytes) + 2 * ARROW_BYTES + SLACK_BYTES


def filled(bootstrap_servers: str, topic: str, batch: bytearray, records: int, plain_bytes: int) -> int:
    """How many times the batch stands there."""
    count = GIGABYTES * 10**9 // plain_bytes
    cluster = Cluster(ClientConfig.parse({"bootstrap.servers": bootstrap_servers, "max.request.size": "20000000"}))
    with RecordProducer(cluster.config) as producer:
        for _ in range(count):
            producer.send_batch(topic, 0, bytearray(batch), records)
    return count


@pytest.mark.parametrize(
    ("records", "value_bytes", "codec"),
    [
        pytest.param(900, 1_000, codecs.NONE, id="1 KB values"),
        pytest.param(1, 1_000_000, codecs.NONE, id="1 MB values"),
        pytest.param(900, 1_000, codecs.ZSTD, id="zstd, a thousandth of its size on the wire"),
        pytest.param(1, 8_000_000, codecs.LZ4, id="values larger than a fetch when they are unfolded"),
    ],
)
def test_the_memory_of_a_task_does_not_grow_with_its_range(
    bootstrap_servers: str, new_topic: Callable[..., str], records: int, value_bytes: int, codec: int
) -> None:
    topic = new_topic()
    plain_bytes = records * value_bytes
    batch = encode_batch([Record(n, 0, None, b"x" * value_bytes) for n in range(records)], codec=codec)
    count = filled(bootstrap_servers, topic, batch, records, plain_bytes)
    ends = [str(count // part * records) for part in (100, 1)]
    command = [sys.executable, "-m", "tests.support.task_memory", bootstrap_servers, topic, *ends]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert max(map(int, done.stdout.split())) < bound_bytes(len(batch), plain_bytes)


@pytest.fixture
def others(spark: SparkSession) -> Iterator[set[int]]:
    """The Python processes of Spark that are not this test's."""
    with workers_of_ones_own(spark, "test_task_memory") as others:
        yield others


@pytest.mark.skipif(sys.platform != "linux", reason="the most that a process held is read from /proc")
def test_the_memory_of_a_task_in_spark_does_not_grow_with_its_range(
    spark: SparkSession, others: set[int], bootstrap_servers: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    batch = encode_batch([Record(n, 0, None, b"x" * 1000) for n in range(900)])
    count = filled(bootstrap_servers, topic, batch, 900, 900_000) * 900

    def most_bytes(rows: int) -> int:
        """That any Python process of this test holds while one task reads so many rows."""
        forget_peaks(python_processes(spark) - others)
        found = (
            spark.read.format("pylog")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
            .option("endingOffsets", f'{{"{topic}": {{"0": {rows}}}}}')
            .option("maxRecordsPerPartition", rows)  # or a large range would be several tasks
            .load()
        )
        assert found.rdd.getNumPartitions() == 1
        found.write.format("noop").mode("overwrite").save()
        return max(map(most_resident_bytes, python_processes(spark) - others))

    few = most_bytes(900)
    assert few < most_bytes(count) < few + bound_bytes(len(batch), len(batch))
