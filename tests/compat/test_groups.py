"""`subscribe()`: members of three client libraries share the partitions of a topic, whoever comes, goes or dies."""

from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

import pylog
from tests.support.foreign_clients import CLIENTS as PLAIN
from tests.support.foreign_clients import ForeignRecord
from tests.support.group_log import group_values
from tests.support.group_members import CLIENTS, Member, ProcessMember, Wanted, members, until, until_shared

CONFIG = {"group.initial.rebalance.delay.ms": 100, "group.min.session.timeout.ms": 100, "log.retention.ms": -1}
PARTITIONS = 4
NOW_MS = 1_700_000_000_000

by_client = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture(scope="module")
def broker() -> Iterator[pylog.Broker]:
    with pylog.Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def name(request: pytest.FixtureRequest, broker: pylog.Broker) -> str:
    """Of a topic of four partitions with ten records each, and of a group that nobody else uses."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-100:]
    PLAIN["confluent-kafka"].create_topic(broker.bootstrap_servers, name, PARTITIONS)
    write(broker, name, 0, 10)
    return name


def write(broker: pylog.Broker, topic: str, start: int, stop: int) -> None:
    for partition in range(PARTITIONS):
        records = [ForeignRecord(None, b"%d" % number, (), NOW_MS) for number in range(start, stop)]
        PLAIN["confluent-kafka"].produce(broker.bootstrap_servers, topic, records, partition=partition)


def places(member: Member) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, offset, _ in member.read]


def all_places(start: int, stop: int) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(start, stop)}


def generation_of(broker: pylog.Broker, group: str) -> int:
    return group_values(broker.data, group)[-1].generation


def described(broker: pylog.Broker, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return admin.describe_consumer_groups([group])[group].result(30)


@by_client
def test_one_member_reads_everything_and_the_next_goes_on_where_it_committed(broker, name, client):
    wanted = Wanted(client, broker.bootstrap_servers, name, name)
    with members(wanted) as (first,):
        until(lambda: set(places(first)) == all_places(0, 10), "all records")
        first.commit()
    write(broker, name, 10, 12)
    with members(wanted) as (second,):
        until(lambda: set(places(second)) >= all_places(10, 12), "the new records")
        assert sorted(places(second)) == sorted(all_places(10, 12))


@pytest.mark.parametrize(
    ("client", "strategy"),
    [
        pytest.param(client, strategy, id=f"{client}, {strategy}")
        for client in CLIENTS
        for strategy in ("range", "roundrobin", "sticky", "cooperative-sticky")
        if (client, strategy) not in {("confluent-kafka", "sticky"), ("aiokafka", "cooperative-sticky")}
    ],
)
def test_two_members_share_and_one_that_leaves_hands_over(broker, name, client, strategy):
    wanted = Wanted(client, broker.bootstrap_servers, name, name, strategy)
    with members(wanted) as (first,):
        until_shared([first], PARTITIONS)
        second = Member(wanted)
        until_shared([first, second], PARTITIONS)
        second.close()
        until_shared([first], PARTITIONS)
        write(broker, name, 10, 11)
        until(lambda: set(places(first)) >= all_places(10, 11), "the new records")


def test_members_of_all_three_libraries_are_one_group(broker, name):
    wanted = [Wanted(client, broker.bootstrap_servers, name, name) for client in CLIENTS]
    with members(*wanted) as group:
        until_shared(group, PARTITIONS)
        read = lambda: {place for member in group for place in places(member)}  # noqa: E731
        until(lambda: read() == all_places(0, 10), "all records")
        found = described(broker, name)
        assert found.state == ConsumerGroupState.STABLE
        assert found.partition_assignor == "range"
        assert {member.host for member in found.members} == {"/127.0.0.1"}
        assert sorted(place.partition for one in found.members for place in one.assignment.topic_partitions) == [
            *range(PARTITIONS)
        ]


@by_client
def test_a_member_that_dies_is_missed_after_its_session(broker, name, client):
    wanted = Wanted(client, broker.bootstrap_servers, name, name, session_ms=1_000)
    with members(wanted) as (first,):
        second = ProcessMember(wanted)
        try:
            until_shared([first, second], PARTITIONS)
        finally:
            second.kill()
        until_shared([first], PARTITIONS)


@by_client
def test_a_static_member_that_comes_back_finds_its_partitions_and_disturbs_nobody(broker, name, client):
    one, two = (Wanted(client, broker.bootstrap_servers, name, name, instance_id=text) for text in ("one", "two"))
    with members(one) as (first,):
        until_shared([first], PARTITIONS)
        second = Member(two)
        until_shared([first, second], PARTITIONS)
        owned = set(second.assigned)
        generation = generation_of(broker, name)
        second.close()
        again = Member(two)
        until(lambda: again.look() == owned, "the same partitions")
        assert generation_of(broker, name) == generation
        assert {member.group_instance_id for member in described(broker, name).members} == {"one", "two"}
        assert first.look() == set(range(PARTITIONS)) - owned
        again.close()


@by_client
def test_members_outlive_the_broker_and_what_they_committed_too(client):
    with pylog.Broker(config=CONFIG) as broker:
        PLAIN["confluent-kafka"].create_topic(broker.bootstrap_servers, "t", PARTITIONS)
        write(broker, "t", 0, 10)
        wanted = Wanted(client, broker.bootstrap_servers, "g", "t")
        with members(wanted, wanted) as group:
            until_shared(group, PARTITIONS)
            until(lambda: {p for one in group for p in places(one)} == all_places(0, 10), "all records")
            for member in group:
                member.commit()
            before = {member.member_id for member in described(broker, "g").members}
            broker.kill()
            broker.start()
            assert {member.member_id for member in described(broker, "g").members} == before
            write(broker, "t", 10, 12)
            until(lambda: {p for one in group for p in places(one)} == all_places(0, 12), "the new records")
            for member in group:
                member.commit()
        assert sorted(p for one in group for p in places(one)) == sorted(all_places(0, 12))  # none of them twice
        broker.kill()
        broker.start()
        committed = PLAIN[client].committed(broker.bootstrap_servers, "g", "t", range(PARTITIONS))
        assert committed == dict.fromkeys(range(PARTITIONS), 12)


def test_admins_see_groups_and_delete_those_without_members(broker, name):
    wanted = Wanted("confluent-kafka", broker.bootstrap_servers, name, name)
    confluent = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    python = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)

    def states() -> dict[str, ConsumerGroupState]:
        return {one.group_id: one.state for one in confluent.list_consumer_groups().result(30).valid}

    with members(wanted) as (member,):
        until_shared([member], PARTITIONS)
        until(lambda: len(member.read) == 40, "all records")
        member.commit()
        assert states()[name] == ConsumerGroupState.STABLE
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            confluent.delete_consumer_groups([name])[name].result(30)
    assert states()[name] == ConsumerGroupState.EMPTY
    assert name in [group["group_id"] for group in python.list_groups()]
    confluent.delete_consumer_groups([name])[name].result(30)
    python.close()
    assert name not in states()
    assert PLAIN["confluent-kafka"].committed(broker.bootstrap_servers, name, name, [0]) == {0: None}
