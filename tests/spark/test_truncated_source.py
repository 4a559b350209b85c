"""Logs that were cut back: by a disk that lost what it had, or a leader that never had it."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pylog
from pylog.storage.checkpoints import RECOVERY_POINTS
from tests.support.query_rows import FRESH, Rows, failing_sink, records
from tests.support.sending import send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "cut"
LEFT, ALL = 6, 10  # the records of the partition that is cut
GONE = f"{TOPIC}-1: the offsets [{LEFT}, {ALL}) are gone: the log ends at {LEFT} now; it was truncated"
SUBSCRIBED = {"subscribe": TOPIC, **FRESH}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[pylog.Broker]:
    with pylog.Broker(tmp_path / "data") as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


@pytest.fixture
def cut(own: pylog.Broker) -> Callable[[], None]:
    """The topic has records; called, this cuts a partition of it back, batches and all that tells of them."""
    servers = own.bootstrap_servers
    send(servers, TOPIC, 0, range(3))
    send(servers, TOPIC, 1, range(LEFT))
    (log,) = own.data.glob(f"{TOPIC}-1/*.log")
    size_bytes = log.stat().st_size
    send(servers, TOPIC, 1, range(LEFT, ALL))

    def cut() -> None:
        own.kill()
        (own.data / RECOVERY_POINTS).unlink(missing_ok=True)
        os.truncate(log, size_bytes)
        own.start()

    return cut


@pytest.fixture
def rows(spark: "SparkSession", own: pylog.Broker, tmp_path: Path) -> Rows:
    return Rows(spark, own.bootstrap_servers, tmp_path)


def test_a_log_cut_back_between_two_runs_fails_the_query_or_is_gone_on_with_at_its_end(
    rows: Rows, own: pylog.Broker, cut: Callable[[], None], either: str
) -> None:
    assert sum(rows.run(None, either, **SUBSCRIBED)) == 3 + ALL
    cut()
    said = rows.failure(either, **SUBSCRIBED)
    if either == "pylog":
        assert GONE in said
    assert "failOnDataLoss" in said
    assert rows.run(None, either, failOnDataLoss="false", **SUBSCRIBED) == []
    send(own.bootstrap_servers, TOPIC, 1, range(20, 22))
    assert rows.run(None, either, **SUBSCRIBED) == [2], "nothing is lost any more"
    assert rows.found(either) == records(TOPIC, 0, range(3)) + records(TOPIC, 1, [*range(ALL), 20, 21])


def test_a_log_cut_back_below_a_batch_that_failed_leaves_of_it_what_is_there(
    rows: Rows, cut: Callable[[], None]
) -> None:
    assert "this sink fails" in rows.failure(sink=failing_sink, **SUBSCRIBED)
    cut()
    assert GONE in rows.failure(**SUBSCRIBED)
    assert rows.run(failOnDataLoss="false", **SUBSCRIBED) == [3 + LEFT]
    assert rows.found() == records(TOPIC, 0, range(3)) + records(TOPIC, 1, range(LEFT))


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_log_cut_back_before_a_task_comes_to_it_fails_the_task_or_gives_what_is_there(
    rows: Rows, cut: Callable[[], None], fail_on_data_loss: str
) -> None:
    found: list[str] = []

    def sink(batch: "DataFrame", number: int) -> None:
        if number == 0:
            cut()  # the end of the batch is in the checkpoint already
        found.extend(row["value"] for row in batch.collect())

    options = {"failOnDataLoss": fail_on_data_loss, "kafkaConsumer.pollTimeoutMs": "500", **SUBSCRIBED}
    if fail_on_data_loss == "true":
        said = rows.failure(sink=sink, **options)
        assert GONE in said
        assert "; nothing came in " in said, "a task waited for it"
    else:
        rows.run(sink=sink, **options)
        assert Counter(found) == records(TOPIC, 0, range(3)) + records(TOPIC, 1, range(LEFT))
