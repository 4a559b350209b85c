"""Java's consumers as members of groups of our broker: they share, hand over, die and come back."""

import json
import subprocess
import threading
from collections.abc import Iterator

import pytest

import pylog
from tests.support.foreign_clients import CLIENTS, ForeignRecord
from tests.support.group_log import group_values
from tests.support.group_members import Member, Wanted, until, until_shared
from tests.support.java_tools import VERIFIABLE_CONSUMER, java_class_command

CONFIG = {"group.initial.rebalance.delay.ms": 0, "log.retention.ms": -1}
PARTITIONS = 6
SESSION_MS = 6_000  # Java's heartbeats come every three seconds
ASSIGNORS = {
    name: f"org.apache.kafka.clients.consumer.{name}Assignor"
    for name in ("Range", "RoundRobin", "Sticky", "CooperativeSticky")
}


class JavaMember:
    """Kafka's VerifiableConsumer, which tells what it is assigned, reads and commits."""

    def __init__(self, servers: str, group: str, topic: str, assignor: str, instance_id: str | None = None) -> None:
        self.read = 0
        self.committed: dict[int, int] = {}
        self._assigned: set[int] = set()
        static = [] if instance_id is None else ["--group-instance-id", instance_id]
        command = java_class_command(
            VERIFIABLE_CONSUMER,
            *("--bootstrap-server", servers, "--group-id", group, "--topic", topic, "--reset-policy", "earliest"),
            *("--session-timeout", str(SESSION_MS), "--assignment-strategy", ASSIGNORS[assignor], *static),
            heap="128m",
        )
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._listen, daemon=True).start()

    def look(self) -> set[int]:
        return self._assigned

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            partitions = {one["partition"] for one in told.get("partitions", ())}
            match told["name"]:
                case "partitions_assigned":
                    self._assigned = self._assigned | partitions
                case "partitions_revoked":
                    self._assigned = self._assigned - partitions
                case "records_consumed":
                    self.read += told["count"]
                case "offsets_committed":
                    assert told["success"], told
                    self.committed |= {one["partition"]: one["offset"] for one in told["offsets"]}


@pytest.fixture(scope="module")
def broker() -> Iterator[pylog.Broker]:
    with pylog.Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def name(request: pytest.FixtureRequest, broker: pylog.Broker) -> str:
    """Of a topic with ten records a partition, and of a group."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-100:]
    CLIENTS["confluent-kafka"].create_topic(broker.bootstrap_servers, name, PARTITIONS)
    write(broker, name)
    return name


def write(broker: pylog.Broker, topic: str) -> None:
    records = [ForeignRecord(None, b"%d" % number, (), 1_700_000_000_000) for number in range(10)]
    for partition in range(PARTITIONS):
        CLIENTS["confluent-kafka"].produce(broker.bootstrap_servers, topic, records, partition=partition)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_share_hand_over_and_are_missed_when_they_die(broker: pylog.Broker, name: str, assignor: str) -> None:
    started: list[JavaMember] = []

    def member() -> JavaMember:
        started.append(JavaMember(broker.bootstrap_servers, name, name, assignor))
        return started[-1]

    try:
        first = member()
        until_shared([first], PARTITIONS)
        until(lambda: first.read == 10 * PARTITIONS, "all records")
        until(lambda: first.committed == dict.fromkeys(range(PARTITIONS), 10), "the commits")
        second, third = member(), member()
        until_shared(started, PARTITIONS)
        second.stop()
        until_shared([first, third], PARTITIONS)
        third.kill()
        until_shared([first], PARTITIONS)
        write(broker, name)
        until(lambda: sum(one.read for one in started) == 20 * PARTITIONS, "the new records")  # and none again
    finally:
        for one in started:
            one.kill()


def test_a_static_member_that_comes_back_keeps_its_partitions_and_the_generation(
    broker: pylog.Broker, name: str
) -> None:
    servers = broker.bootstrap_servers
    members = [JavaMember(servers, name, name, "Range", instance_id=text) for text in ("one", "two")]
    try:
        until_shared(members, PARTITIONS)
        owned, generation = set(members[1].look()), group_values(broker.data, name)[-1].generation
        members[1].stop()
        members.append(JavaMember(servers, name, name, "Range", instance_id="two"))
        until(lambda: members[2].look() == owned, "the same partitions")
        assert group_values(broker.data, name)[-1].generation == generation
    finally:
        for one in members:
            one.kill()


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_java_and_another_library_are_one_group(broker: pylog.Broker, name: str, client: str) -> None:
    java = JavaMember(broker.bootstrap_servers, name, name, "Range")
    other = None
    try:
        until_shared([java], PARTITIONS)
        other = Member(Wanted(client, broker.bootstrap_servers, name, name))
        until_shared([java, other], PARTITIONS)
        java.stop()
        until_shared([other], PARTITIONS)
    finally:
        java.kill()
        if other is not None:
            other.close()


def test_members_outlive_the_broker() -> None:
    with pylog.Broker(config=CONFIG) as broker:
        CLIENTS["confluent-kafka"].create_topic(broker.bootstrap_servers, "t", PARTITIONS)
        write(broker, "t")
        members = [JavaMember(broker.bootstrap_servers, "g", "t", "CooperativeSticky") for _ in range(2)]
        try:
            until_shared(members, PARTITIONS)
            until(lambda: sum(one.read for one in members) == 10 * PARTITIONS, "all records")
            until(lambda: sum(sum(one.committed.values()) for one in members) >= 10 * PARTITIONS, "the commits")
            broker.kill()
            broker.start()
            write(broker, "t")
            until(lambda: sum(one.read for one in members) == 20 * PARTITIONS, "the new records")
            until_shared(members, PARTITIONS)
        finally:
            for one in members:
                one.kill()
