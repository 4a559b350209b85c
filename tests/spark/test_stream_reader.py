"""What Spark's planner asks of a stream, asked directly: the broker is real, only the JVM is missing."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import BrokerUnavailable, ConfigError, UnknownTopic
from pylog.connector.spark import stream_source
from pylog.connector.spark.errors import DataLoss
from pylog.connector.spark.groups import GroupCommits
from pylog.connector.spark.offsets import NOTE
from pylog.connector.spark.option_rows import Taker
from pylog.connector.spark.options import source_options
from pylog.connector.spark.plan import OffsetRange
from pylog.connector.spark.stream_source import StreamReader
from tests.support.stream_readers import ALL, NewReader, looked, plain, planned, read_first

pytestmark = pytest.mark.connector

Produce = Callable[..., None]
NewTopic = Callable[..., str]


def test_a_new_query_reads_from_earliest_to_latest(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 3)
    reader = new_reader(topic)
    start = reader.initialOffset()
    assert plain(start) == {topic: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ALL)
    assert plain(end) == {topic: {"0": 3, "1": 0}}
    assert reader.reportLatestOffset() == plain(end)
    assert planned(reader, start, end) == [OffsetRange(topic, 0, 0, 3)]
    assert planned(reader, end, end) == []
    assert reader.latestOffset(end, ALL) == end


def test_the_first_offset_stays_the_same_while_records_arrive(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic()
    reader = new_reader(topic, "latest")
    first = reader.initialOffset()
    produce(topic, 0, 2)
    assert reader.initialOffset() == first
    assert plain(first) == {topic: {"0": 0}}


def test_a_first_batch_from_latest_that_is_replayed_reads_what_it_was_to_read(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    """`latest` is another offset by then: where the batch began is in its end."""
    topic = new_topic()
    produce(topic, 0, 5)
    crashed = new_reader(topic, "latest")
    start = crashed.initialOffset()
    produce(topic, 0, 2)
    end_in_log = crashed.latestOffset(start, ALL)
    assert planned(crashed, start, end_in_log) == [OffsetRange(topic, 0, 5, 7)]
    produce(topic, 0, 4)
    again = new_reader(topic, "latest")
    assert planned(again, again.initialOffset(), end_in_log) == [OffsetRange(topic, 0, 5, 7)]
    assert looked(again, end_in_log) == {topic: {"0": 11}}


def test_a_replayed_first_batch_of_an_older_version_is_empty_and_nothing_behind_it_is_lost(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic()
    produce(topic, 0, 9)
    again = new_reader(topic, "latest")
    start, end_in_log = again.initialOffset(), {topic: {"0": 5}}
    assert plain(start) == {topic: {"0": 9}}
    assert planned(again, start, end_in_log) == []
    assert looked(again, end_in_log) == {topic: {"0": 9}}


def test_what_did_not_change_goes_back_as_it_came(new_topic: NewTopic, produce: Produce, new_reader: NewReader) -> None:
    """Spark compares text: an offset without a note, or in another order, must not make a batch of nothing."""
    topic = new_topic(partitions=2)
    produce(topic, 0, 3)
    start = {topic: {"1": 0, "0": 3}}
    assert json.dumps(new_reader(topic).latestOffset(start, ALL)) == json.dumps(start)


def test_offsets_by_partition_are_resolved(new_topic: NewTopic, produce: Produce, new_reader: NewReader) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        produce(topic, partition, 4)
    reader = new_reader(topic, json.dumps({topic: {"0": 2, "1": -1, "2": -2}}))
    assert plain(reader.initialOffset()) == {topic: {"0": 2, "1": 4, "2": 0}}


@pytest.mark.parametrize("named", [{"0": 0}, {"0": 0, "1": 0, "2": 0}], ids=["too few", "too many"])
def test_offsets_must_name_every_partition(new_topic: NewTopic, new_reader: NewReader, named: dict[str, int]) -> None:
    topic = new_topic(partitions=2)
    with pytest.raises(
        ConfigError, match=f"startingOffsets must name every partition.*There are: {topic}-0, {topic}-1"
    ):
        read_first(new_reader(topic, json.dumps({topic: named})))


def test_a_limit_is_the_default_and_is_kept(new_topic: NewTopic, produce: Produce, new_reader: NewReader) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 30)
    produce(topic, 1, 10)
    reader = new_reader(topic, maxOffsetsPerTrigger="8")
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    assert new_reader(topic).getDefaultReadLimit() == ALL
    start = reader.initialOffset()
    assert looked(reader, start, ReadMaxRows(8)) == {topic: {"0": 6, "1": 2}}
    assert looked(reader, start) == {topic: {"0": 30, "1": 10}}  # Trigger.Once


def test_available_now_ends_where_the_topic_ended_when_it_began(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic()
    produce(topic, 0, 10)
    reader = new_reader(topic)
    reader.prepareForTriggerAvailableNow()
    produce(topic, 0, 5)
    ends = []
    start = reader.initialOffset()
    while plain(end := reader.latestOffset(start, ReadMaxRows(4))) != plain(start):
        ends.append(end[topic]["0"])
        start = end
    assert ends == [4, 8, 10]
    assert reader.reportLatestOffset() == {topic: {"0": 15}}


def test_available_now_from_latest_ends_where_it_starts_though_records_come(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic()
    produce(topic, 0, 10)
    reader = new_reader(topic, "latest")
    reader.prepareForTriggerAvailableNow()
    produce(topic, 0, 5)
    start = reader.initialOffset()
    assert plain(start) == {topic: {"0": 15}}
    end = reader.latestOffset(start, ALL)
    assert plain(end) == plain(start)
    assert reader.latestOffset(end, ALL) == end


def test_a_new_partition_is_read_from_its_first_offset(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 2)
    produce(topic, 1, 3)
    reader = new_reader(topic, "latest")
    before = {topic: {"0": 2}}  # as a checkpoint from a time with one partition has it
    assert looked(reader, before, ReadMaxRows(2)) == {topic: {"0": 2, "1": 2}}
    end = reader.latestOffset(before, ALL)
    assert planned(reader, before, end) == [OffsetRange(topic, 1, 0, 3)]


def test_an_idle_source_hears_of_records_while_it_waits(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pylog.connector.spark import stream_source

    topic = new_topic()
    reader = new_reader(topic)
    start = reader.initialOffset()
    waits = []

    def produce_meanwhile(cluster: Cluster, offsets: dict[tuple[str, int], int], wait_ms: int) -> bool:
        waits.append(wait_ms)
        if len(waits) == 5:
            produce(topic, 0, 1)
        return wait_for_records(cluster, offsets, wait_ms)

    wait_for_records = stream_source.wait_for_records
    monkeypatch.setattr(stream_source, "wait_for_records", produce_meanwhile)
    start = reader.latestOffset(start, ALL)  # the first batch is made at once, of nothing
    for _ in range(4):
        assert reader.latestOffset(start, ALL) == start
    assert looked(reader, start) == {topic: {"0": 1}}
    assert waits == sorted(set(waits)), "each wait is longer than the last"
    assert waits[-1] <= stream_source.IDLE_WAIT_MS_MAX


# The group's offsets


def test_the_group_follows_what_is_done_the_last_batch_included(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 3)
    reader = new_reader(topic, **{"kafka.group.id": f"group-of-{topic}"})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert cluster.committed_offsets(f"group-of-{topic}") == {}, "nothing is done yet"
    reader.latestOffset(end, ALL)
    assert cluster.committed_offsets(f"group-of-{topic}") == {(topic, 0): 3, (topic, 1): 0}


def test_the_group_is_committed_by_commit_too_and_only_when_something_changed(
    new_topic: NewTopic, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=2)
    commits = []

    def commit_offsets(self: Cluster, group: str, offsets: dict[tuple[str, int], int]) -> None:
        commits.append((group, offsets))

    monkeypatch.setattr(Cluster, "commit_offsets", commit_offsets)
    reader = new_reader(topic, **{"kafka.group.id": "g"})
    reader.commit({topic: {"0": 3, "1": 4}})
    reader.commit({topic: {"0": 3, "1": 4}})
    reader.commit({topic: {"0": 3, "1": 5}})
    assert commits == [("g", {(topic, 0): 3, (topic, 1): 4}), ("g", {(topic, 1): 5})]


def test_without_a_group_the_query_has_one_of_its_own_and_keeps_it(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> None:
    topic = new_topic()
    produce(topic, 0, 3)
    reader = new_reader(topic)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    group = f"spark-kafka-source-{end[NOTE]['query']}"
    assert reader.latestOffset(end, ALL) == end
    assert cluster.committed_offsets(group) == {(topic, 0): 3}
    produce(topic, 0, 2)
    restarted = new_reader(topic)
    second = restarted.latestOffset(end, ALL)
    assert restarted.latestOffset(second, ALL) == second
    assert cluster.committed_offsets(group) == {(topic, 0): 5}
    named = new_reader(topic, groupIdPrefix="orders")
    named.latestOffset(second, ALL)
    assert cluster.committed_offsets(f"orders-{end[NOTE]['query']}") == {(topic, 0): 5}


def test_two_queries_have_two_groups(new_topic: NewTopic, new_reader: NewReader) -> None:
    topic = new_topic()
    one, other = (new_reader(topic).initialOffset()[NOTE]["query"] for _ in range(2))
    assert one != other


def test_a_commit_that_fails_is_a_warning_and_is_made_up_for(
    new_topic: NewTopic, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    commits: list[Any] = []

    def refuse(self: Cluster, group: str, offsets: dict[tuple[str, int], int]) -> None:
        commits.append(offsets)
        if len(commits) == 1:
            raise UnknownTopic("the coordinator's")

    monkeypatch.setattr(Cluster, "commit_offsets", refuse)
    reader = new_reader(topic, **{"kafka.group.id": "g"})
    reader.commit({topic: {"0": 1}})
    assert "the offsets of the group 'g' were not committed" in caplog.text
    while len(commits) < 2:  # soon, but not at once
        reader.commit({topic: {"0": 1}})
    assert commits == [{(topic, 0): 1}, {(topic, 0): 1}]


def test_commits_that_fail_slowly_are_not_tried_at_every_trigger(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, attempts = 0.0, []

    def fail_slowly(self: Cluster, group: str, offsets: dict[tuple[str, int], int]) -> None:
        nonlocal now
        attempts.append(now)
        now += 5
        raise UnknownTopic("the coordinator's")

    monkeypatch.setattr(Cluster, "commit_offsets", fail_slowly)
    commits = GroupCommits(ClientConfig.parse({"bootstrap.servers": bootstrap_servers}), clock=lambda: now)
    for offset in range(120):
        commits.commit("g", {("t", 0): offset})
        now += 1
    assert attempts == [0, 55, 110]


def test_no_commit_is_tried_for_what_is_not_there(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker refuses it in a way that asks for another try: it would hold up the query for seconds."""
    topic = new_topic()
    produce(topic, 0, 3)
    commits: list[Any] = []
    monkeypatch.setattr(Cluster, "commit_offsets", lambda self, group, offsets: commits.append(offsets))
    with pytest.raises(DataLoss):
        new_reader(topic).latestOffset({topic: {"0": 3, "1": 7}}, ALL)
    assert commits == [{(topic, 0): 3}]


def test_a_new_query_starts_where_a_group_stands(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 5)
    produce(topic, 1, 4)
    cluster.commit_offsets(f"of-{topic}", {(topic, 0): 2})
    group = {"kafka.group.id": f"of-{topic}"}
    for without_commit, expected in (("earliest", 0), ("latest", 4)):
        reader = new_reader(topic, "group", startingOffsetsWithoutCommit=without_commit, **group)
        assert plain(reader.initialOffset()) == {topic: {"0": 2, "1": expected}}
    with pytest.raises(ConfigError, match=f"'of-{topic}' has no commit for {topic}-1.*startingOffsetsWithoutCommit"):
        read_first(new_reader(topic, "group", **group))
    with pytest.raises(ConfigError, match=r"kafka\.group\.id must name the group"):
        new_reader(topic, "group")


def test_a_pattern_that_nothing_fits_yet_waits_for_its_first_topic(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> None:
    prefix = new_topic()
    reader = new_reader("", subscribePattern=f"^{prefix}-.*")
    start = reader.initialOffset()
    assert plain(start) == {}
    done = reader.latestOffset(start, ALL)
    assert planned(reader, start, done) == []
    assert reader.latestOffset(done, ALL) == done
    cluster.create_topic(f"{prefix}-new", 1, 1)
    produce(f"{prefix}-new", 0, 2)
    end = reader.latestOffset(done, ALL)
    assert planned(reader, done, end) == [OffsetRange(f"{prefix}-new", 0, 0, 2)]


# Records that are gone


@pytest.fixture
def shrunk(new_topic: NewTopic, produce: Produce, cluster: Cluster) -> str:
    """A topic that was deleted and made anew: it had more records than it has now."""
    topic = new_topic()
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 4)
    return topic


def test_an_end_before_what_was_read_is_data_loss(shrunk: str, new_reader: NewReader) -> None:
    reader = new_reader(shrunk)
    gone = rf"{shrunk}-0: the offsets \[4, 10\) are gone: the log ends at 4 now.*set failOnDataLoss to false"
    with pytest.raises(DataLoss, match=gone):
        reader.latestOffset({shrunk: {"0": 10}}, ALL)
    with pytest.raises(DataLoss, match=gone):
        new_reader(shrunk).partitions({shrunk: {"0": 10}}, {shrunk: {"0": 4}})


def test_without_fail_on_data_loss_reading_goes_on_at_the_earliest(
    shrunk: str, new_reader: NewReader, caplog: pytest.LogCaptureFixture
) -> None:
    reader = new_reader(shrunk, failOnDataLoss="false")
    start = {shrunk: {"0": 10}}
    assert looked(reader, start, ReadMaxRows(3)) == {shrunk: {"0": 3}}
    end = reader.latestOffset(start, ALL)
    assert plain(end) == {shrunk: {"0": 4}}
    assert planned(reader, start, end) == [OffsetRange(shrunk, 0, 0, 4)]
    assert caplog.text.count("going on with the earliest that is there") == 1
    assert reader.latestOffset(end, ALL) == end


def test_a_batch_of_an_earlier_run_that_cannot_be_read_any_more_is_data_loss(
    shrunk: str, new_reader: NewReader
) -> None:
    start, end = {shrunk: {"0": 2}}, {shrunk: {"0": 10}}
    with pytest.raises(DataLoss, match=rf"{shrunk}-0: the offsets \[4, 10\) are gone: the log ends at 4 now"):
        new_reader(shrunk).partitions(start, end)
    assert planned(new_reader(shrunk, failOnDataLoss="false"), start, end) == [OffsetRange(shrunk, 0, 2, 4)]


def test_partitions_that_are_gone_are_data_loss(new_topic: NewTopic, new_reader: NewReader) -> None:
    topic = new_topic()
    start = {topic: {"0": 0, "1": 7}}
    with pytest.raises(DataLoss, match=f"{topic}-1: the offsets from 7 on are gone: the partition does not exist"):
        new_reader(topic).latestOffset(start, ALL)
    assert looked(new_reader(topic, failOnDataLoss="false"), start) == {topic: {"0": 0}}


def test_a_topic_that_is_gone_is_data_loss_or_left_out(
    new_topic: NewTopic, new_reader: NewReader, cluster: Cluster
) -> None:
    kept, gone = new_topic(), new_topic()
    cluster.delete_topic(gone)
    start = {kept: {"0": 0}, gone: {"0": 7}}
    with pytest.raises(DataLoss, match=f"{gone}-0: the offsets from 7 on are gone: the topic '{gone}' does not exist"):
        new_reader(f"{kept},{gone}").latestOffset(start, ALL)
    assert looked(new_reader(f"{kept},{gone}", failOnDataLoss="false"), start) == {kept: {"0": 0}}


def test_a_topic_that_never_was_stops_a_new_query(new_reader: NewReader) -> None:
    with pytest.raises(UnknownTopic, match="create it first"):
        read_first(new_reader("no-such-topic"))


def test_a_first_batch_that_is_run_again_begins_where_it_began_though_the_topic_has_grown(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, add_partitions: Callable[[str, int], None]
) -> None:
    topic = new_topic()
    produce(topic, 0, 10)
    starting = json.dumps({topic: {"0": 3}})
    reader = new_reader(topic, startingOffsets=starting)
    end = read_first(reader)
    add_partitions(topic, 2)
    again = new_reader(topic, startingOffsets=starting)
    assert planned(again, again.initialOffset(), end) == [OffsetRange(topic, 0, 3, 10)]
    with pytest.raises(ConfigError, match="must name every partition"):
        read_first(new_reader(topic, startingOffsets=starting))


def test_a_first_batch_of_an_older_version_needs_its_start(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic()
    produce(topic, 0, 10)
    reader = new_reader(topic, startingOffsets=json.dumps({topic: {"0": 3, "1": 0}}))
    with pytest.raises(ConfigError, match="must name every partition"):
        reader.partitions(reader.initialOffset(), {topic: {"0": 10}})


def test_available_now_finds_out_soon_that_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def nobody(config: Any, timeout_ms: int) -> None:
        asked.append(timeout_ms)
        raise BrokerUnavailable([("127.0.0.1:1", "refused")])

    monkeypatch.setattr(stream_source, "contact", nobody)
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    reader = StreamReader(source_options(options, Taker.STREAM), StructType())
    with pytest.raises(BrokerUnavailable):
        reader.prepareForTriggerAvailableNow()
    assert asked == [5_000]


def test_a_reader_is_small_when_it_travels_to_a_task(new_topic: NewTopic, new_reader: NewReader) -> None:
    reader = new_reader(new_topic())
    assert len(pickle.dumps(reader)) < 5000
