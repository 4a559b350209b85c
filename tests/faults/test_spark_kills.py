"""kill -9 under a running stream: of the driver in mid-batch, of a Python worker and of an executor in mid-task, of the
broker in mid-query. Every row is there once in the end.

Each takes a minute: `make test` runs the first of them, `make test-kafka` and `make faults` all."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pylog
from tests.conftest import RunningBroker
from tests.support.apache_kafka import SOON_BACK, ApacheKafka
from tests.support.spark_copy import PARTITIONS, ROWS, Copy, filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.connector, pytest.mark.timeout(900)]  # each starts some Sparks of its own

BATCH_ROWS = 25_000


@pytest.fixture
def copy(bootstrap_servers: str, topic: str, tmp_path: Path) -> Iterator[Callable[..., Copy]]:
    """`copy(master=...)`: a query with a driver of its own."""
    made: list[Copy] = []

    def copy(master: str = "local[2]", servers: str = bootstrap_servers) -> Copy:
        folder = tmp_path / "copy"
        folder.mkdir()
        made.append(Copy(servers, topic, folder, rows=BATCH_ROWS, master=master))
        return made[-1]

    yield copy
    for one in made:
        one.kill()


def assert_every_row_once(spark: "SparkSession", tmp_path: Path) -> None:
    found = spark.read.schema("partition int, offset long").parquet(str(tmp_path / "copy" / "rows"))
    counts = Counter({row["partition"]: row["count"] for row in found.groupBy("partition").count().collect()})
    assert counts == Counter(dict.fromkeys(range(PARTITIONS), ROWS // PARTITIONS))
    assert found.distinct().count() == ROWS
    assert found.agg({"offset": "max"}).collect()[0][0] == ROWS // PARTITIONS - 1


def test_a_driver_that_is_killed_in_mid_batch_goes_on_with_exactly_the_missing_rows(
    spark: "SparkSession", copy: Callable[..., Copy], tmp_path: Path
) -> None:
    query = copy()
    for number in (0, 3):
        query.start()
        query.wait_until_within_a_batch(number)
        query.kill()
    query.run()
    assert_every_row_once(spark, tmp_path)


@pytest.mark.usefixtures("at_length")
def test_a_python_worker_that_is_killed_in_mid_task_costs_an_attempt_of_that_task(
    spark: "SparkSession", copy: Callable[..., Copy], tmp_path: Path
) -> None:
    query = copy("local[2,8]")  # a task may fail seven times
    query.start()
    for number in (1, 3):
        query.wait_until_within_a_batch(number)
        query.wait_until(lambda: bool(query.python_workers()))
        for worker in query.python_workers():
            worker.kill()
    query.wait()
    assert_every_row_once(spark, tmp_path)


@pytest.mark.usefixtures("at_length")
def test_executors_in_processes_of_their_own_read_and_one_may_be_killed_in_mid_task(
    spark: "SparkSession", copy: Callable[..., Copy], tmp_path: Path
) -> None:
    query = copy("local-cluster[2,1,1024]")
    query.start()
    query.wait_until_within_a_batch(1)
    query.wait_until(lambda: len(query.executors()) == 2)
    query.executors()[0].kill()
    query.wait()
    assert_every_row_once(spark, tmp_path)


@pytest.mark.usefixtures("at_length")
def test_a_broker_that_is_killed_in_mid_query_is_waited_for(
    spark: "SparkSession", broker: RunningBroker, copy: Callable[..., Copy], tmp_path: Path
) -> None:
    own = ApacheKafka(SOON_BACK) if isinstance(broker, ApacheKafka) else pylog.Broker()
    with own:
        filled(spark, own.bootstrap_servers)
        query = copy(servers=own.bootstrap_servers)
        query.start()
        for number in (0, 3):
            query.wait_until_within_a_batch(number)
            own.kill()
            own.start()
        query.wait()
    assert_every_row_once(spark, tmp_path)
