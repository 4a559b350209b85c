"""What a task yields for its offset range, without a JVM."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import InputPartition

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.errors import OffsetOutOfRange, RangeNotReached, UnknownTopic
from pylog.connector.client.fetcher import fetch_range
from pylog.connector.spark import read
from pylog.connector.spark.errors import DataLoss, RecordsLate
from pylog.connector.spark.option_rows import Taker
from pylog.connector.spark.options import SourceOptions, source_options
from pylog.connector.spark.plan import OffsetRange
from pylog.connector.spark.read import RangePartition, read_partition
from pylog.connector.spark.schema import source_schema

pytestmark = pytest.mark.connector

Offsets = Callable[..., list[int]]


@pytest.fixture
def offsets(bootstrap_servers: str) -> Offsets:
    """The offsets of the rows that a task yields."""

    def offsets(wanted: OffsetRange, topic_id: UUID | None = None, **options: str) -> list[int]:
        given = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": wanted.topic} | options
        parsed: SourceOptions = source_options(given, Taker.BATCH)
        batches = read_partition(parsed, source_schema(False), RangePartition(wanted, topic_id))
        return [offset for batch in batches for offset in batch["offset"].to_pylist()]

    return offsets


@pytest.fixture
def topic(new_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    topic = new_topic()
    produce(topic, 0, 10)
    return topic


def test_a_range_is_read_exactly(topic: str, offsets: Offsets) -> None:
    assert offsets(OffsetRange(topic, 0, 3, 8)) == [3, 4, 5, 6, 7]


def test_a_range_is_read_by_many_small_fetches_too(topic: str, offsets: Offsets) -> None:
    assert offsets(OffsetRange(topic, 0, 0, 10), **{"kafka.max.partition.fetch.bytes": "1"}) == list(range(10))


def test_sparks_placeholder_for_no_partitions_yields_nothing(topic: str, bootstrap_servers: str) -> None:
    given = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
    found = read_partition(source_options(given, Taker.BATCH), source_schema(False), InputPartition(None))
    assert list(found) == []


def test_a_range_behind_the_end_of_the_log_is_data_loss(topic: str, offsets: Offsets) -> None:
    beyond = OffsetRange(topic, 0, 15, 20)
    with pytest.raises(DataLoss, match=rf"{topic}-0: the offsets \[10, 20\) are gone: the log ends at 10 now"):
        offsets(beyond)
    assert offsets(beyond, failOnDataLoss="false") == []


def test_records_that_were_deleted_meanwhile_are_data_loss_or_skipped(
    topic: str, offsets: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def aged(cluster: Any, topic: str, partition: int, start: int, end: int, *rest: Any) -> Iterator[Any]:
        if start < 6:
            raise OffsetOutOfRange(topic, partition, start, 6, 10)
        return fetch_range(cluster, topic, partition, start, end)

    monkeypatch.setattr(read, "fetch_range", aged)
    with pytest.raises(DataLoss, match=r"-0: the offsets \[2, 6\) are gone: the log starts at 6 now"):
        offsets(OffsetRange(topic, 0, 2, 9))
    assert offsets(OffsetRange(topic, 0, 2, 9), failOnDataLoss="false") == [6, 7, 8]
    assert offsets(OffsetRange(topic, 0, 2, 5), failOnDataLoss="false") == []


def test_an_end_that_never_comes_is_data_loss_or_skipped(
    topic: str, offsets: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(cluster: Any, topic: str, partition: int, start: int, end: int, *rest: Any) -> Iterator[Any]:
        yield from fetch_range(cluster, topic, partition, start, 10)
        raise RangeNotReached(topic, partition, 10, end, 10, 60_000)

    monkeypatch.setattr(read, "fetch_range", short)
    with pytest.raises(DataLoss, match=r"-0: the offsets \[10, 12\) are gone: .* nothing came in 60000 ms"):
        offsets(OffsetRange(topic, 0, 8, 12))
    assert offsets(OffsetRange(topic, 0, 8, 12), failOnDataLoss="false") == [8, 9]


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_what_is_there_and_does_not_come_in_time_is_no_loss(
    topic: str, offsets: Offsets, monkeypatch: pytest.MonkeyPatch, fail_on_data_loss: str
) -> None:
    """Neither an error that says so nor a warning and rows that are left out: the task fails, and is tried again."""

    def late(cluster: Any, topic: str, partition: int, start: int, end: int, *rest: Any) -> Iterator[Any]:
        yield from fetch_range(cluster, topic, partition, start, 9)
        raise RangeNotReached(topic, partition, 9, end, 9, 1000)

    ends = iter([9, 10])  # a leader that has just taken over lags for a moment

    def latest(cluster: Cluster, places: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, next(ends))

    monkeypatch.setattr(read, "fetch_range", late)
    monkeypatch.setattr(Cluster, "latest", latest)
    with pytest.raises(RecordsLate, match=r"-0: offset 9 did not come in 1000 ms, though the log has it"):
        offsets(
            OffsetRange(topic, 0, 8, 10),
            **{"failOnDataLoss": fail_on_data_loss, "fetchOffset.retryIntervalMs": "1"},
        )
    assert next(ends, None) is None


def test_a_topic_that_is_deleted_while_its_end_is_asked_for_is_a_loss(
    topic: str, offsets: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(cluster: Any, topic: str, partition: int, start: int, end: int, *rest: Any) -> Iterator[Any]:
        raise RangeNotReached(topic, partition, start, end, start, 1000)

    def latest(cluster: Cluster, places: Any) -> dict[tuple[str, int], int]:
        raise UnknownTopic(topic)

    monkeypatch.setattr(read, "fetch_range", late)
    monkeypatch.setattr(Cluster, "latest", latest)
    with pytest.raises(DataLoss, match=rf"the offsets \[8, 10\) are gone: the topic '{topic}' does not exist"):
        offsets(OffsetRange(topic, 0, 8, 10))
    assert offsets(OffsetRange(topic, 0, 8, 10), failOnDataLoss="false") == []


def test_a_topic_that_was_made_anew_since_it_was_planned_is_not_read_in_its_place(
    topic: str, offsets: Offsets, cluster: Cluster, produce: Callable[..., None]
) -> None:
    planned = OffsetRange(topic, 0, 3, 8), cluster.topic_id(topic)
    assert offsets(*planned) == [3, 4, 5, 6, 7]
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 10)
    with pytest.raises(
        DataLoss, match=rf"{topic}-0: the offsets \[3, 8\) are gone: the topic .* made anew \(its id was"
    ):
        offsets(*planned)
    assert offsets(*planned, failOnDataLoss="false") == []
