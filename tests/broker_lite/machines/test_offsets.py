from uuid import UUID

import pytest

from pylog.broker_lite import event_log
from pylog.broker_lite.machines.offsets import CommittedOffset, Offsets
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.records import Record

AT_5 = CommittedOffset(5, -1, "", 1_700_000_000_000)
AT_9 = CommittedOffset(9, 2, "mark", 1_700_000_000_001, topic_id=UUID(int=7))


def commit(offsets, group, commits):
    outcome = offsets.decide(group, commits)
    for event in outcome.events:
        offsets.replay(event)
    return outcome


def test_the_last_commit_of_a_partition_holds():
    offsets = Offsets(metadata_units_max=10)
    assert offsets.decide("g", {("t", 0): AT_5}).reply == {("t", 0): ErrorCode.NONE}
    assert offsets.committed("g") == {}, "deciding changed the state"
    commit(offsets, "g", {("t", 0): AT_5, ("t", 1): AT_5})
    commit(offsets, "g", {("t", 0): AT_9})
    assert offsets.committed("g") == {("t", 0): AT_9, ("t", 1): AT_5}
    assert offsets.committed("other") == {}


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [
        pytest.param("x" * 10, True, id="exactly as long as it may be"),
        pytest.param("x" * 11, False, id="one more"),
        pytest.param("é" * 10, True, id="two bytes are one unit"),
        pytest.param("𝄞" * 5, True, id="four bytes are two units"),
        pytest.param("𝄞" * 5 + "x", False, id="and one unit more"),
    ],
)
def test_metadata_is_counted_in_utf_16_units(metadata, fits):
    outcome = Offsets(metadata_units_max=10).decide("g", {("t", 0): AT_5._replace(metadata=metadata)})
    assert outcome.reply == {("t", 0): ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_metadata_that_is_too_long_refuses_its_partition_only():
    long = AT_5._replace(metadata="x" * 11)
    outcome = commit(Offsets(metadata_units_max=10), "g", {("t", 0): long, ("t", 1): AT_5})
    assert outcome.reply == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE, ("t", 1): ErrorCode.NONE}
    assert [event.key.partition for event in outcome.events] == [1]


def test_a_deleted_topic_takes_its_commits_with_it():
    offsets = Offsets(10)
    commit(offsets, "g", {("t", 0): AT_5, ("u", 0): AT_9})
    commit(offsets, "h", {("t", 0): AT_5})
    for events in offsets.topic_deleted("t").values():
        for event in events:
            offsets.replay(event)
    assert offsets.committed("g") == {("u", 0): AT_9}
    assert offsets.committed("h") == {}
    assert offsets.topic_deleted("t") == {}


def test_events_survive_their_records():
    offsets = Offsets(10)
    events = commit(offsets, "g", {("t", 0): AT_9}).events
    events += [event for gone in offsets.topic_deleted("t").values() for event in gone]
    for event in events:
        key, value = event_log.offset_record(event)
        assert event_log.offset_event(Record(0, 0, key, value)) == event
