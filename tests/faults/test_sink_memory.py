"""A task of the sink that is faster than its broker waits: its memory stays under the bound of docs/sink.md, whatever
its Arrow batches are like."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pylog
from pylog.connector.producer import SLICES_IN_BUFFER
from pylog.connector.spark.worker import FREE_BYTES_MAX
from tests.support.arrow_batches import SHAPES, Shape
from tests.support.spark_workers import forget_peaks, most_resident_bytes, python_processes, workers_of_ones_own

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the most that a process held is read from /proc")

MEGABYTES = 2_000 if int(os.environ.get("PYLOG_FAULT_ROUNDS", "0")) > 1 else 400
BUFFER_BYTES = 32 << 20  # buffer.memory
WAKE_SECONDS = 0.02
SECONDS_MAX = 280
CONFIG = {"num.partitions": 4}


def bound_bytes(shape: Shape) -> int:
    """As docs/sink.md states it."""
    part = min(BUFFER_BYTES // SLICES_IN_BUFFER, shape.size_bytes)
    return BUFFER_BYTES + 2 * shape.size_bytes + part + FREE_BYTES_MAX


@contextlib.contextmanager
def slow(broker: pylog.Broker, sleep_seconds: float) -> Iterator[None]:
    """It works for moments, with so much time between them: a writer's memory is full again and again."""
    process, is_over = broker.pid, threading.Event()
    assert process is not None

    def run() -> None:
        while not is_over.is_set():
            os.kill(process, signal.SIGSTOP)
            is_over.wait(sleep_seconds)
            os.kill(process, signal.SIGCONT)
            is_over.wait(WAKE_SECONDS)

    stopping = threading.Thread(target=run)
    stopping.start()
    try:
        yield
    finally:
        is_over.set()
        stopping.join()


def most_bytes(name: str, codec: str) -> int:
    """That a task takes for Arrow batches of this shape, beyond what its process had before."""
    with pylog.Broker(config=CONFIG) as broker:
        given = [broker.bootstrap_servers, name, str(MEGABYTES), codec]
        command = [sys.executable, "-m", "tests.support.sink_memory", *given]
        with slow(broker, 0.15):
            task = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert task.returncode == 0, task.stderr
    return int(task.stdout)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("rows of 1 KB", "none"),
        ("rows of 1 KB", "lz4"),
        ("few rows with most of the bytes, for five topics", "lz4"),
    ],
)
def test_a_slow_broker_makes_a_task_wait_and_not_grow(name: str, codec: str) -> None:
    assert 0 < most_bytes(name, codec) < bound_bytes(SHAPES[name])


@pytest.mark.usefixtures("at_length")
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_whatever_its_rows_are_like(name: str, codec: str) -> None:
    assert 0 < most_bytes(name, codec) < bound_bytes(SHAPES[name])


@pytest.fixture
def others(spark: "SparkSession") -> Iterator[set[int]]:
    """The Python processes of Spark that are not this test's."""
    with workers_of_ones_own(spark, "test_sink_memory") as others:
        yield others


def test_a_slow_broker_makes_a_task_in_spark_wait_and_not_grow(spark: "SparkSession", others: set[int]) -> None:
    shape = SHAPES["rows of 1 KB"]
    with pylog.Broker(config=CONFIG) as broker:

        def most_of_workers(rows: int) -> int:
            """That any Python process of this test holds while one task writes so many rows."""
            forget_peaks(python_processes(spark) - others)
            given = spark.range(0, rows, 1, 1).selectExpr(
                "cast(id as string) key", f"repeat(cast(id % 10 as string), {shape.row_bytes}) value"
            )
            writer = given.write.format("pylog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
            writer.option("topic", "t").mode("append").save()
            return max(map(most_resident_bytes, python_processes(spark) - others))

        few = most_of_workers(10)
        with slow(broker, 0.3):  # half as much as above, for Spark makes rows more slowly
            many = most_of_workers(MEGABYTES * 500)
    assert few < many < few + bound_bytes(shape)
