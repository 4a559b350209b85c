"""kill -9 while Spark writes: of the broker in mid-write, of the driver, a Python worker and an executor in mid-batch.

While no task attempt fails, every row is there once and in its order, whatever happens to the broker. A batch that
Spark runs again writes again: then every row is there at least once.

`make test` runs the first of them, `make test-kafka` and `make faults` all."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pylog
from pylog.connector.client.cluster import Cluster
from tests.conftest import RunningBroker
from tests.support import spark_copy
from tests.support.apache_kafka import SOON_BACK, ApacheKafka
from tests.support.spark_copy import Copy
from tests.support.writes import ROWS, assert_every_row_once_and_keys_in_order, cluster_of, read, write_through, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.connector, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("PYLOG_FAULT_ROUNDS", "1"))
PARTITIONS = 4
BATCH_ROWS = 50_000  # of a stream's copy


def new_broker(like: RunningBroker) -> Any:
    return ApacheKafka(SOON_BACK) if isinstance(like, ApacheKafka) else pylog.Broker()


# The broker


def after_kills(spark: "SparkSession", broker: RunningBroker, rounds: int, **options: str) -> "Iterator[DataFrame]":
    """The rows of a topic after a write in which the broker was killed twice, as often as it is asked for."""
    with new_broker(broker) as own:
        kill = (own.kill, own.start)
        for number in range(rounds):
            topic = f"written-{number}"
            cluster_of(own.bootstrap_servers).create_topic(topic, PARTITIONS, 1)
            yield write_through(spark, own.bootstrap_servers, topic, [kill, kill], **options)


def test_a_broker_that_is_killed_in_mid_write_has_every_row_once_and_in_order(
    spark: "SparkSession", broker: RunningBroker
) -> None:
    for rows in after_kills(spark, broker, min(ROUNDS, 5)):
        assert_every_row_once_and_keys_in_order(rows)


@pytest.mark.usefixtures("at_length")
def test_compressed_rows_survive_it_too(spark: "SparkSession", broker: RunningBroker) -> None:
    for rows in after_kills(spark, broker, 2, **{"kafka.compression.type": "zstd"}):
        assert_every_row_once_and_keys_in_order(rows)


@pytest.mark.usefixtures("at_length")
def test_without_idempotence_every_row_is_there_at_least_once(spark: "SparkSession", broker: RunningBroker) -> None:
    for rows in after_kills(spark, broker, 2, **{"kafka.acks": "1"}):
        assert rows.selectExpr("count(distinct n)", "min(n)", "max(n)").first() == (ROWS, 0, ROWS - 1)


# The driver, its workers and its executors, while a stream copies a topic into another


@pytest.fixture
def target(bootstrap_servers: str, new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=PARTITIONS)


@pytest.fixture
def copy(bootstrap_servers: str, topic: str, target: str, tmp_path: Path) -> Iterator[Callable[..., Copy]]:
    """`copy(master=...)`: a query with a driver of its own that writes to `target`."""
    made: list[Copy] = []

    def copy(master: str = "local[2]", servers: str = bootstrap_servers, to: str = target) -> Copy:
        folder = tmp_path / "copy"
        folder.mkdir()
        made.append(Copy(servers, topic, folder, rows=BATCH_ROWS, master=master, target=to))
        return made[-1]

    yield copy
    for one in made:
        one.kill()


def wait_until_written(query: Copy, cluster: Cluster, topic: str, rows: int) -> None:
    """The first of them are there: with whole micro-batches for `rows`, the query is within one or just behind it."""
    query.wait_until(lambda: written(cluster, topic) > rows)


def assert_at_least_once(rows: "DataFrame", batches_again: int) -> None:
    """And no more of them twice than the micro-batches that were run again hold."""
    count, distinct, low, high = rows.selectExpr("count(*)", "count(distinct n)", "min(n)", "max(n)").first()  # type: ignore[misc]
    assert (distinct, low, high) == (spark_copy.ROWS, 0, spark_copy.ROWS - 1)
    assert count <= spark_copy.ROWS + batches_again * BATCH_ROWS


@pytest.mark.usefixtures("at_length")
def test_a_driver_that_is_killed_in_mid_batch_writes_every_row_at_least_once(
    spark: "SparkSession", bootstrap_servers: str, copy: Callable[..., Copy], target: str
) -> None:
    query, cluster = copy(), cluster_of(bootstrap_servers)
    for number in range(min(ROUNDS, 3)):
        query.start()
        wait_until_written(query, cluster, target, number * BATCH_ROWS)
        query.kill()
    query.run()
    assert_at_least_once(read(spark, bootstrap_servers, target), batches_again=min(ROUNDS, 3))


@pytest.mark.usefixtures("at_length")
def test_python_workers_that_are_killed_in_mid_task_cost_an_attempt_of_their_tasks(
    spark: "SparkSession", bootstrap_servers: str, copy: Callable[..., Copy], target: str
) -> None:
    query, cluster = copy("local[2,8]"), cluster_of(bootstrap_servers)  # a task may fail seven times
    query.start()
    for number in (0, 1):
        wait_until_written(query, cluster, target, number * BATCH_ROWS)
        for worker in query.python_workers():
            worker.kill()
    query.wait()
    assert_at_least_once(read(spark, bootstrap_servers, target), batches_again=2)


@pytest.mark.usefixtures("at_length")
def test_an_executor_that_is_killed_in_mid_task_costs_an_attempt_of_its_tasks(
    spark: "SparkSession", bootstrap_servers: str, copy: Callable[..., Copy], target: str
) -> None:
    query, cluster = copy("local-cluster[2,1,1024]"), cluster_of(bootstrap_servers)
    query.start()
    wait_until_written(query, cluster, target, BATCH_ROWS)
    query.wait_until(lambda: len(query.executors()) == 2)
    query.executors()[0].kill()
    query.wait()
    assert_at_least_once(read(spark, bootstrap_servers, target), batches_again=1)


@pytest.mark.usefixtures("at_length")
def test_a_broker_that_is_killed_under_a_stream_has_every_row_once(
    spark: "SparkSession", broker: RunningBroker, copy: Callable[..., Copy]
) -> None:
    """No task fails, so none is run again."""
    with new_broker(broker) as own:
        servers = own.bootstrap_servers
        spark_copy.filled(spark, servers)
        cluster = cluster_of(servers)
        cluster.create_topic("copied", PARTITIONS, 1)
        query = copy(servers=servers, to="copied")
        query.start()
        for number in (0, 1):
            wait_until_written(query, cluster, "copied", number * BATCH_ROWS)
            own.kill()
            own.start()
        query.wait()
        assert_at_least_once(read(spark, servers, "copied"), batches_again=0)
