from uuid import UUID

import pytest

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.topics import PRODUCER_ID_BLOCK, Topics
from pylog.broker_lite.protocol.errors import ErrorCode

ONE, TWO = UUID(int=11), UUID(int=12)


def carry_out(topics, outcome):
    for event in outcome.events:
        topics.replay(event)
    return outcome


def test_deciding_changes_nothing_and_replaying_decides_nothing():
    topics = Topics(node_id=1)
    outcome = topics.create("orders", 3, {"segment.bytes": "4096"}, ONE)
    assert topics.by_name == {}
    carry_out(topics, outcome)
    assert topics.by_name["orders"] == outcome.reply
    assert topics.by_id[ONE].partition_count == 3
    assert topics.by_id[ONE].overrides == {"segment.bytes": "4096"}


def test_a_restart_is_the_same_replay():
    live, events = Topics(node_id=1), []
    for outcome in (live.create("a", 2, {}, ONE), live.create("b", 1, {}, TWO)):
        events += carry_out(live, outcome).events
    events += carry_out(live, live.delete("a", ONE)).events
    again = Topics(node_id=1)
    for event in events:
        again.replay(event)
    assert again.by_name == live.by_name
    assert list(again.by_name) == ["b"]


@pytest.mark.parametrize(
    ("name", "partitions", "code"),
    [
        pytest.param("there", 1, ErrorCode.TOPIC_ALREADY_EXISTS, id="twice"),
        pytest.param("new", 0, ErrorCode.INVALID_PARTITIONS, id="no partitions"),
        pytest.param("new", -2, ErrorCode.INVALID_PARTITIONS, id="less than none"),
        pytest.param("new", 10_001, ErrorCode.POLICY_VIOLATION, id="too many partitions"),
        pytest.param("__cluster_metadata", 1, ErrorCode.INVALID_REQUEST, id="our own"),
        pytest.param("the.re", 1, ErrorCode.INVALID_TOPIC_EXCEPTION, id="the same name as a metric"),
        pytest.param("", 1, ErrorCode.INVALID_TOPIC_EXCEPTION, id="empty name"),
        pytest.param("..", 1, ErrorCode.INVALID_TOPIC_EXCEPTION, id="a directory's name"),
        pytest.param("a/b", 1, ErrorCode.INVALID_TOPIC_EXCEPTION, id="a path"),
        pytest.param("a\n", 1, ErrorCode.INVALID_TOPIC_EXCEPTION, id="a line break"),
        pytest.param("x" * 250, 1, ErrorCode.INVALID_TOPIC_EXCEPTION, id="one character too many"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(name, partitions, code):
    topics = Topics(node_id=1)
    carry_out(topics, topics.create("there", 1, {}, ONE))
    carry_out(topics, topics.create("the_re", 1, {}, UUID(int=13)))
    with pytest.raises(RequestError) as refused:
        topics.create(name, partitions, {}, TWO)
    assert refused.value.code == code


def test_a_name_of_249_characters_is_fine():
    assert Topics(1).create("x" * 249, 1, {}, ONE).reply.name == "x" * 249


@pytest.mark.parametrize(
    ("name", "topic_id", "code"),
    [
        pytest.param("nowhere", UUID(int=0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="by name"),
        pytest.param(None, TWO, ErrorCode.UNKNOWN_TOPIC_ID, id="by id"),
    ],
)
def test_what_cannot_be_deleted_is_refused(name, topic_id, code):
    topics = Topics(node_id=1)
    with pytest.raises(RequestError) as refused:
        topics.delete(name, topic_id)
    assert refused.value.code == code


def test_producer_ids_are_never_given_out_twice_even_over_a_crash():
    topics, log, given = Topics(node_id=1), [], []
    for _ in range(3):
        for _ in range(PRODUCER_ID_BLOCK + 1):
            outcome = topics.next_producer_id()
            log += carry_out(topics, outcome).events
            topics.took_producer_id(outcome.reply)
            given.append(outcome.reply)
        topics = Topics(node_id=1)
        for event in log:
            topics.replay(event)
        topics.restarted()
    assert len(set(given)) == len(given)
    assert len(log) == 6
