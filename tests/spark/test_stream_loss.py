"""Records that are gone before a stream has read them: which ones, why, and where it goes on."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.errors import OffsetOutOfRange, RangeNotReached, TopicRemade, UnknownPartition, UnknownTopic
from pylog.connector.spark.checkpoint import Mark
from pylog.connector.spark.data_loss import met_by_task
from pylog.connector.spark.errors import DataLoss
from pylog.connector.spark.offsets import NOTE
from pylog.connector.spark.plan import OffsetRange
from tests.support.stream_readers import ALL, Json, NewReader, looked, plain, planned, read_first

pytestmark = pytest.mark.connector

NewTopic = Callable[..., str]
Produce = Callable[..., None]
DeleteRecords = Callable[[str, int, int], None]
GOES_ON = "going on with the earliest that is there"


def group_of(offset: Json) -> str:
    return f"spark-kafka-source-{offset[NOTE]['query']}"


# Retention


@pytest.fixture
def overtaken(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, delete_records: DeleteRecords
) -> tuple[str, Json]:
    """(a topic of 40 offsets, of which 25 are gone; the checkpoint of a query that has read 10)."""
    topic = new_topic()
    produce(topic, 0, 10)
    done = read_first(new_reader(topic))
    produce(topic, 0, 30)
    delete_records(topic, 0, 25)
    return topic, done


def test_what_retention_took_is_named(overtaken: tuple[str, Json], new_reader: NewReader) -> None:
    topic, done = overtaken
    gone = rf"{topic}-0: the offsets \[10, 25\) are gone: the log starts at 25 now.*retention, or by DeleteRecords"
    with pytest.raises(DataLoss, match=gone):
        new_reader(topic).latestOffset(done, ALL)


def test_a_limit_counts_from_the_earliest_that_is_there(
    overtaken: tuple[str, Json], new_reader: NewReader, caplog: pytest.LogCaptureFixture
) -> None:
    """Not from what was lost: batches without a row would follow one another."""
    topic, done = overtaken
    reader = new_reader(topic, failOnDataLoss="false")
    end = reader.latestOffset(done, ReadMaxRows(6))
    assert plain(end) == {topic: {"0": 31}}
    assert planned(reader, done, end) == [OffsetRange(topic, 0, 25, 31)]
    assert "[10, 25) are gone" in caplog.text
    assert caplog.text.count(GOES_ON) == 1
    assert looked(reader, end) == {topic: {"0": 40}}
    assert caplog.text.count(GOES_ON) == 1


def test_what_was_read_before_retention_took_it_is_no_loss(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, delete_records: DeleteRecords
) -> None:
    topic = new_topic()
    produce(topic, 0, 10)
    reader = new_reader(topic)
    done = read_first(reader)
    delete_records(topic, 0, 10)
    assert reader.latestOffset(done, ALL) == done
    produce(topic, 0, 2)
    assert looked(reader, done) == {topic: {"0": 12}}


def test_a_new_partition_that_has_lost_its_beginning_is_named(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, delete_records: DeleteRecords
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 1, 8)
    delete_records(topic, 1, 5)
    before = {topic: {"0": 0}}
    with pytest.raises(DataLoss, match=rf"{topic}-1: the offsets \[0, 5\) are gone"):
        new_reader(topic).latestOffset(before, ALL)
    reader = new_reader(topic, failOnDataLoss="false")
    assert planned(reader, before, reader.latestOffset(before, ALL)) == [OffsetRange(topic, 1, 5, 8)]


# Topics that were deleted, and made anew


@pytest.fixture(params=[4, 25], ids=["shorter", "longer"])
def remade(
    request: pytest.FixtureRequest, new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> tuple[str, Json, int]:
    """(a topic made anew, the checkpoint of a query that read 10 of the old one, how many the new one has)."""
    topic = new_topic()
    produce(topic, 0, 12)
    reader = new_reader(topic)
    start = reader.initialOffset()
    done = reader.latestOffset(start, ReadMaxRows(10))
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, request.param)
    return topic, done, request.param


def test_a_topic_that_was_made_anew_is_known_by_its_id(
    remade: tuple[str, Json, int], new_reader: NewReader, cluster: Cluster
) -> None:
    topic, done, _ = remade
    was = done[NOTE]["topicIds"][topic]
    gone = (
        rf"{topic}-0: the offsets from 10 on are gone: the topic '{topic}' was deleted and made anew \(its id was {was}"
    )
    with pytest.raises(DataLoss, match=gone):
        new_reader(topic).latestOffset(done, ALL)


def test_a_topic_that_was_made_anew_is_read_from_its_first_offset(
    remade: tuple[str, Json, int], new_reader: NewReader, caplog: pytest.LogCaptureFixture
) -> None:
    topic, done, count = remade
    reader = new_reader(topic, failOnDataLoss="false")
    first = reader.latestOffset(done, ReadMaxRows(3))
    assert plain(first) == {topic: {"0": 3}}
    assert planned(reader, done, first) == [OffsetRange(topic, 0, 0, 3)]
    assert planned(new_reader(topic, failOnDataLoss="false"), done, first) == [OffsetRange(topic, 0, 0, 3)], "replayed"
    second = reader.latestOffset(first, ALL)
    assert planned(reader, first, second) == [OffsetRange(topic, 0, 3, count)]
    assert reader.latestOffset(second, ALL) == second
    assert caplog.text.count("made anew") == 2, "by the one who went on, and by the one who replayed"


def test_a_topic_that_was_made_anew_is_not_read_on_because_the_old_one_is_still_believed_in(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> None:
    """It is longer than what was read of the old one: nothing but its id tells."""
    topic = new_topic()
    produce(topic, 0, 5)
    believing = {"kafka.metadata.max.age.ms": "600000"}
    failing = new_reader(topic, **believing)
    going_on = new_reader(topic, failOnDataLoss="false", **believing)
    done = read_first(failing)
    read_first(going_on)
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 8)
    with pytest.raises(DataLoss, match=rf"{topic}-0: the offsets from 5 on are gone: the topic '{topic}' was deleted"):
        failing.latestOffset(done, ALL)
    assert cluster.committed_offsets(group_of(done)) == {}, "the new topic would take the old one's"
    assert planned(going_on, done, going_on.latestOffset(done, ALL)) == [OffsetRange(topic, 0, 0, 8)]


def test_a_topic_that_is_made_anew_before_the_first_batch_is_read_from_its_first_offset(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> None:
    topic = new_topic()
    produce(topic, 0, 5)
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    reader = new_reader(topic, **options)
    start = reader.initialOffset()
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 8)
    end = reader.latestOffset(start, ALL)
    assert planned(reader, start, end) == [OffsetRange(topic, 0, 0, 8)]
    assert planned(new_reader(topic, **options), start, end) == [OffsetRange(topic, 0, 0, 8)], "replayed"


def test_ends_that_were_heard_in_part_before_a_topic_was_made_anew_are_asked_for_again(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 9)
    reader = new_reader(topic, failOnDataLoss="false")
    start = reader.initialOffset()
    heard = Cluster.latest

    def interrupted(asked: Cluster, places: Any) -> Any:
        monkeypatch.setattr(Cluster, "latest", heard)
        old = asked.latest(places)
        cluster.delete_topic(topic)
        cluster.create_topic(topic, 2, 1)
        produce(topic, 1, 4)
        return {**old, (topic, 1): 4}

    monkeypatch.setattr(Cluster, "latest", interrupted)
    end = reader.latestOffset(start, ALL)
    assert plain(end) == {topic: {"0": 0, "1": 4}}
    assert planned(reader, start, end) == [OffsetRange(topic, 1, 0, 4)]


def test_a_batch_whose_topic_was_made_anew_before_it_was_replayed_is_not_read_from_the_new_one(
    remade: tuple[str, Json, int], new_reader: NewReader
) -> None:
    topic, done, count = remade
    mark = Mark.from_json(done)
    end = mark._replace(offsets={(topic, 0): 12}, first=None).to_json()
    with pytest.raises(DataLoss, match=rf"{topic}-0: the offsets \[10, 12\) are gone: the topic .* made anew"):
        new_reader(topic).partitions(done, end)
    reader = new_reader(topic, failOnDataLoss="false")
    assert planned(reader, done, end) == []
    after = reader.latestOffset(end, ALL)
    assert planned(reader, end, after) == [OffsetRange(topic, 0, 0, count)]


def test_a_topic_that_is_deleted_while_it_is_believed_to_be_there_is_data_loss_or_left_out(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> None:
    kept, gone = new_topic(), new_topic()
    produce(gone, 0, 7)
    believing = {"kafka.metadata.max.age.ms": "600000"}
    failing = new_reader(f"{kept},{gone}", **believing)
    going_on = new_reader(f"{kept},{gone}", failOnDataLoss="false", **believing)
    done = read_first(failing)
    read_first(going_on)
    cluster.delete_topic(gone)
    with pytest.raises(DataLoss, match=f"{gone}-0: the offsets from 7 on are gone: the topic '{gone}' does not exist"):
        failing.latestOffset(done, ALL)
    assert looked(going_on, done) == {kept: {"0": 0}}


def test_a_topic_that_was_deleted_is_a_loss_once_and_then_a_topic_that_is_not_there(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    kept, gone = new_topic(), new_topic()
    produce(gone, 0, 7)
    reader = new_reader(f"{kept},{gone}", failOnDataLoss="false")
    done = read_first(reader)
    cluster.delete_topic(gone)
    end = reader.latestOffset(done, ALL)
    assert f"{gone}-0: the offsets from 7 on are gone" in caplog.text
    assert caplog.text.count("failOnDataLoss is false: going on without it") == 1
    caplog.clear()
    for again in (reader, reader, new_reader(f"{kept},{gone}", failOnDataLoss="false")):
        assert looked(again, end) == {kept: {"0": 0}}
    assert "are gone" not in caplog.text, "they were read"
    assert caplog.text.count(f"the topic '{gone}' does not exist") == 2, "each run says so once"
    cluster.create_topic(gone, 1, 1)
    produce(gone, 0, 2)
    assert planned(reader, end, reader.latestOffset(end, ALL)) == [OffsetRange(gone, 0, 0, 2)]


def test_a_topic_of_a_pattern_that_was_deleted_is_called_so_though_its_partitions_are_still_believed_in(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster
) -> None:
    """The list of all topics is heard anew before what is known of this one."""
    topic = new_topic()
    produce(topic, 0, 3)
    reader = new_reader("", subscribePattern=topic, **{"kafka.metadata.max.age.ms": "600000"})
    done = read_first(reader)
    cluster.delete_topic(topic)
    Cluster.of(reader._options.client).expire_names()
    with pytest.raises(
        DataLoss, match=f"{topic}-0: the offsets from 3 on are gone: the topic '{topic}' does not exist"
    ):
        reader.latestOffset(done, ALL)


def test_a_first_batch_of_which_a_topic_was_deleted_is_run_again_without_it(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    kept, gone = new_topic(), new_topic()
    produce(kept, 0, 5)
    produce(gone, 0, 7)
    subscribed = f"{kept},{gone}"
    end = read_first(new_reader(subscribed))
    cluster.delete_topic(gone)
    failing = new_reader(subscribed)
    with pytest.raises(DataLoss, match=rf"{gone}-0: the offsets \[0, 7\) are gone: the topic '{gone}' does not exist"):
        failing.partitions(failing.initialOffset(), end)
    reader = new_reader(subscribed, failOnDataLoss="false")
    assert planned(reader, reader.initialOffset(), end) == [OffsetRange(kept, 0, 0, 5)]
    assert caplog.text.count("[0, 7) are gone") == 1
    produce(kept, 0, 2)
    assert planned(reader, end, reader.latestOffset(end, ALL)) == [OffsetRange(kept, 0, 5, 7)]


@pytest.mark.parametrize("is_seen_absent", [False, True])
def test_a_topic_made_anew_that_has_as_many_records_is_committed_again(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader, cluster: Cluster, is_seen_absent: bool
) -> None:
    other = new_topic()
    topic = new_topic()
    produce(topic, 0, 5)
    reader = new_reader(f"{topic},{other}", failOnDataLoss="false")
    done = read_first(reader)
    assert reader.latestOffset(done, ALL) == done
    assert cluster.committed_offsets(group_of(done))[topic, 0] == 5
    cluster.delete_topic(topic)
    if is_seen_absent:
        done = reader.latestOffset(done, ALL)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 5)
    end = reader.latestOffset(done, ALL)
    assert planned(reader, done, end) == [OffsetRange(topic, 0, 0, 5)]
    assert (topic, 0) not in cluster.committed_offsets(group_of(done))
    assert reader.latestOffset(end, ALL) == end
    assert cluster.committed_offsets(group_of(done))[topic, 0] == 5


def test_a_topic_that_is_read_no_longer_is_not_called_deleted(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    """As in Spark's connector, it is a loss all the same."""
    kept, other = new_topic(), new_topic()
    produce(other, 0, 3)
    done = read_first(new_reader(f"{kept},{other}"))
    with pytest.raises(
        DataLoss, match=f"{other}-0: the offsets from 3 on are gone: the topic is there, but this query"
    ):
        new_reader(kept).latestOffset(done, ALL)
    assert looked(new_reader(kept, failOnDataLoss="false"), done) == {kept: {"0": 0}}


def test_a_log_that_was_cut_short_goes_on_at_its_end(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    """The same topic by its id: what is left of it had been read."""
    topic = new_topic()
    produce(topic, 0, 4)
    mark = Mark.from_json(read_first(new_reader(topic)))
    before = mark._replace(offsets={(topic, 0): 9}, first=None).to_json()
    with pytest.raises(
        DataLoss, match=rf"{topic}-0: the offsets \[4, 9\) are gone: the log ends at 4 now; it was trunc"
    ):
        new_reader(topic).latestOffset(before, ALL)
    reader = new_reader(topic, failOnDataLoss="false")
    end = reader.latestOffset(before, ALL)
    assert plain(end) == {topic: {"0": 4}}
    assert planned(reader, before, end) == []
    produce(topic, 0, 2)
    assert looked(reader, end) == {topic: {"0": 6}}


def test_starting_behind_the_end_is_said_so(new_topic: NewTopic, produce: Produce, new_reader: NewReader) -> None:
    topic = new_topic()
    produce(topic, 0, 3)
    beyond = f'{{"{topic}": {{"0": 50}}}}'
    reader = new_reader(topic, beyond)
    with pytest.raises(DataLoss, match="the log ends at 3, and startingOffsets asks for 50"):
        reader.latestOffset(reader.initialOffset(), ALL)
    reader = new_reader(topic, beyond, failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert planned(reader, start, end) == []
    produce(topic, 0, 2)
    assert planned(reader, end, reader.latestOffset(end, ALL)) == [OffsetRange(topic, 0, 3, 5)]


# What tasks meet


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            OffsetOutOfRange("t", 0, 5, 8, 30),
            "t-0: the offsets [5, 8) are gone: the log starts at 8",
            id="retention took the beginning",
        ),
        pytest.param(
            OffsetOutOfRange("t", 0, 5, 50, 60),
            "t-0: the offsets [5, 20) are gone: the log starts",
            id="retention took all",
        ),
        pytest.param(
            OffsetOutOfRange("t", 0, 5, 0, 3),
            "t-0: the offsets [3, 20) are gone: the log ends at 3",
            id="truncated before it",
        ),
        pytest.param(
            RangeNotReached("t", 0, 12, 20, 12, 99),
            "t-0: the offsets [12, 20) are gone: the log ends",
            id="truncated within",
        ),
        pytest.param(
            TopicRemade("t", UUID(int=1), UUID(int=2)),
            "t-0: the offsets [5, 20) are gone: the topic 't' was deleted and made anew (its id was AAAAAAA",
            id="another topic",
        ),
        pytest.param(
            UnknownTopic("t"), "t-0: the offsets [5, 20) are gone: the topic 't' does not exist", id="no topic"
        ),
        pytest.param(
            UnknownPartition("t", 0, 0), "t-0: the offsets [5, 20) are gone: the partition does", id="no partition"
        ),
    ],
)
def test_a_task_says_what_is_gone_of_its_range(error: Any, said: str) -> None:
    assert str(met_by_task(error, "t", 0, 5, 20)).startswith(said)
