"""Retention that overtakes a query while it runs, because it is slower than records grow old or many."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pylog
from tests.support.query_rows import DEADLINE_S, FRESH, Rows, records
from tests.support.sending import send
from tests.support.writes import cluster_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000
OLD, ALL = 30, 40  # records
READ = 5  # records of a batch of the query, and of a segment of the log
BY_TIME, BY_SIZE = {"retention.ms": HOUR_MS // 2}, {"retention.bytes": 500}
SEEN_BY_PLANNER, SEEN_BY_TASKS = FRESH, {"kafka.metadata.max.age.ms": "600000"}


@pytest.fixture(scope="module")
def own() -> Iterator[pylog.Broker]:
    with pylog.Broker(config={"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 50}) as broker:
        yield broker


class Keeping:
    """A topic of which all is kept, until `only` says otherwise."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self.topic = servers, topic
        for first in range(0, ALL, READ):
            send(servers, topic, 0, range(first, first + READ), age_ms=HOUR_MS if first < OLD else 0)

    def only(self, limit: dict[str, int]) -> None:
        """Returns when what is beyond the limit is deleted."""
        from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

        ((name, value),) = limit.items()
        entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self._servers})
        (done,) = admin.incremental_alter_configs([resource]).values()
        done.result(30)
        deadline = time.monotonic() + DEADLINE_S
        while self.first == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    @property
    def first(self) -> int:
        """The first offset that is there."""
        place = self.topic, 0
        return cluster_of(self._servers).earliest([place])[place]


@pytest.fixture
def keeping(own: pylog.Broker) -> Keeping:
    topic = own.create_topic(partitions=1, **{"retention.ms": -1, "segment.bytes": 150})
    return Keeping(own.bootstrap_servers, topic)


@pytest.mark.faults
@pytest.mark.usefixtures("at_length")
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize(
    ("limit", "seen_by"),
    [
        pytest.param(BY_TIME, SEEN_BY_PLANNER, id="by time, seen by the planner"),
        pytest.param(BY_SIZE, SEEN_BY_TASKS, id="by size, seen by tasks"),
    ],
)
def test_retention_that_overtakes_a_running_query_fails_it_or_is_stepped_over(
    spark: "SparkSession",
    own: pylog.Broker,
    keeping: Keeping,
    tmp_path: Path,
    either: str,
    limit: dict[str, int],
    seen_by: dict[str, str],
    fail_on_data_loss: str,
) -> None:
    found: list[str] = []

    def slowly(batch: "DataFrame", number: int) -> None:
        found.extend(row["value"] for row in batch.collect())
        if number == 0:
            keeping.only(limit)

    topic = keeping.topic
    options = {"subscribe": topic, "maxOffsetsPerTrigger": str(READ), "failOnDataLoss": fail_on_data_loss, **seen_by}
    read_ahead: Counter[str] = Counter()
    if either == "kafka":  # its consumer may have asked for one record batch more before it was deleted
        options["kafka.max.partition.fetch.bytes"] = "1"
        read_ahead = records(topic, 0, range(READ, 2 * READ))
    rows = Rows(spark, own.bootstrap_servers, tmp_path)
    if fail_on_data_loss == "false":
        rows.run(None, either, slowly, **options)
        assert 2 * READ < keeping.first < ALL
        assert Counter(found) - read_ahead == records(topic, 0, [*range(READ), *range(keeping.first, ALL)])
        return
    said = rows.failure(either, slowly, **options)
    if either == "pylog":
        end = 2 * READ if seen_by == SEEN_BY_TASKS else keeping.first  # a task looks no further than its range
        assert f"{topic}-0: the offsets [{READ}, {end}) are gone: the log starts at {keeping.first} now" in said
        assert "they were deleted by retention" in said
    assert "failOnDataLoss" in said
    assert Counter(found) - read_ahead == records(topic, 0, range(READ))
