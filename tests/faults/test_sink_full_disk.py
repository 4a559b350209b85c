"""A broker's disk that is full under a Spark write: the task waits for room as long as it may, and then says so."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.support.clock import SettableClock
from tests.support.connected import ServedBroker, serving
from tests.support.simulated_files import SimulatedFiles
from tests.support.spark_errors import refusal
from tests.support.wire_clients import WireClient, eventually, have_made_themselves
from tests.support.writes import cluster_of, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(100)  # less than the two minutes of kafka.delivery.timeout.ms

CONFIG = {"log.retention.ms": -1, "num.partitions": 3}
ROOM_BYTES = 30_000
BATCH_BYTES = 4_000
ROWS = 300
SOON = {"kafka.request.timeout.ms": "500", "kafka.delivery.timeout.ms": "1500"}
Write = Callable[..., None]


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles(SettableClock(int(time.time() * 1000)))  # rows have the time of writing


@pytest.fixture
def served(files: SimulatedFiles) -> Iterator[ServedBroker]:
    """There is the topic t, and room for some of the rows."""
    with serving([Path(files.root / "data")], files=files, clock=files.clock, config=CONFIG) as running:
        with WireClient(running.bootstrap_servers) as client:
            have_made_themselves(client, "t")
        files.capacity_bytes = files.used_bytes + ROOM_BYTES
        yield running


@pytest.fixture
def rows(spark: "SparkSession") -> "DataFrame":
    """Three times what there is room for, in one task and for one partition."""
    return spark.range(0, ROWS, 1, 1).selectExpr("lpad(cast(id as string), 300, '0') value", "2 partition")


@pytest.fixture
def write(served: ServedBroker, rows: "DataFrame") -> Write:
    def write(**options: str) -> None:
        writer = rows.write.format("pylog").option("kafka.bootstrap.servers", served.bootstrap_servers)
        writer = writer.option("kafka.batch.size", str(BATCH_BYTES)).options(**options)
        writer.option("topic", "t").mode("append").save()

    return write


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        pytest.param(SOON, "delivery.timeout.ms=1500", id="what was sent is not taken"),
        pytest.param(
            {"kafka.buffer.memory": "20000", "kafka.max.block.ms": "1000"}, "max.block.ms=1000", id="no room for more"
        ),
    ],
)
def test_the_task_fails_with_partition_and_cause(write: Write, options: dict[str, str], limit: str) -> None:
    said = refusal(lambda: write(**options))
    assert not [part for part in ("t-2", limit, "KAFKA_STORAGE_ERROR", "No space left") if part not in said], said


def test_a_write_goes_on_when_there_is_room_again(
    spark: "SparkSession", files: SimulatedFiles, served: ServedBroker, write: Write
) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            spark.createDataFrame([], "value int")  # the session is active in this thread, else no format is known
            write()
        except BaseException as error:
            failures.append(error)

    cluster, writing = cluster_of(served.bootstrap_servers), threading.Thread(target=run)
    assert files.capacity_bytes is not None
    full_bytes = files.capacity_bytes - BATCH_BYTES
    writing.start()
    assert eventually(lambda: files.used_bytes > full_bytes)
    assert 0 < written(cluster, "t") < ROWS
    assert writing.is_alive()
    files.capacity_bytes = None
    writing.join(60)
    assert not failures
    assert written(cluster, "t") == ROWS
