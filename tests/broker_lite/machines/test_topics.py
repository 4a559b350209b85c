from uuid import UUID

import pytest

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.topics import PRODUCER_ID_BLOCK, Topics
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE

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


def test_a_topic_gets_partitions_behind_those_it_has():
    topics = Topics(node_id=1)
    carry_out(topics, topics.create("orders", 2, {}, ONE))
    outcome = topics.add_partitions("orders", 4)
    assert [(event.partition_id, event.topic_id, event.replicas) for event in outcome.events] == [
        (2, ONE, [1]),
        (3, ONE, [1]),
    ]
    assert topics.by_name["orders"].partition_count == 2
    carry_out(topics, outcome)
    assert topics.by_id[ONE].partition_count == 4


@pytest.mark.parametrize(
    ("name", "count", "code"),
    [
        pytest.param("nowhere", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown"),
        pytest.param("orders", 2, ErrorCode.INVALID_PARTITIONS, id="no more"),
        pytest.param("orders", 1, ErrorCode.INVALID_PARTITIONS, id="fewer"),
        pytest.param("orders", 10_003, ErrorCode.POLICY_VIOLATION, id="too many at once"),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(name, count, code):
    topics = Topics(node_id=1)
    carry_out(topics, topics.create("orders", 2, {}, ONE))
    with pytest.raises(RequestError) as refused:
        topics.add_partitions(name, count)
    assert refused.value.code == code


def test_options_are_set_and_given_back_and_what_is_so_needs_no_record():
    topics = Topics(node_id=1)
    carry_out(topics, topics.create("orders", 1, {"flush.ms": "1", "segment.ms": "2"}, ONE))
    changes = {"flush.ms": "1", "segment.ms": None, "retention.ms": "3", "index.interval.bytes": None}
    outcome = carry_out(topics, topics.configure(TOPIC_RESOURCE, "orders", changes))
    assert [(event.name, event.value) for event in outcome.events] == [("segment.ms", None), ("retention.ms", "3")]
    assert topics.by_name["orders"].overrides == {"flush.ms": "1", "retention.ms": "3"}


def test_brokers_have_options_each_for_itself_and_all_together():
    topics = Topics(node_id=1)
    for name in ("", "1"):
        carry_out(topics, topics.configure(BROKER_RESOURCE, name, {"log.roll.ms": f"9{name}"}))
    carry_out(topics, topics.configure(BROKER_RESOURCE, "1", {"log.roll.ms": None}))
    assert topics.overrides_of(BROKER_RESOURCE, "") == {"log.roll.ms": "9"}
    assert topics.overrides_of(BROKER_RESOURCE, "1") == topics.overrides_of(BROKER_RESOURCE, "2") == {}


def test_quotas_are_set_and_taken_away_and_what_is_so_needs_no_record():
    topics, client = Topics(node_id=1), (("client-id", None), ("user", "u"))
    carry_out(topics, topics.set_quotas(client, {"a": 1.0, "b": 2.0}))
    outcome = carry_out(topics, topics.set_quotas(client, {"a": 1.0, "b": None, "c": None}))
    assert [(event.key, event.remove) for event in outcome.events] == [("b", True)]
    assert topics.quotas == {client: {"a": 1.0}}
    carry_out(topics, topics.set_quotas(client, {"a": None}))
    assert topics.quotas == {}


def test_a_name_that_metrics_cannot_tell_apart_is_free_again_after_a_deletion():
    topics = Topics(node_id=1)
    carry_out(topics, topics.create("a.b_c", 1, {}, ONE))
    with pytest.raises(RequestError, match=r"collides with 'a\.b_c'"):
        topics.create("a_b.c", 1, {}, TWO)
    carry_out(topics, topics.delete("a.b_c", ONE))
    assert topics.create("a_b.c", 1, {}, TWO).reply.name == "a_b.c"


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
