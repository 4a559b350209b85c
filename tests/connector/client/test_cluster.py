import pickle
import socket
import threading
from collections.abc import Callable
from uuid import UUID

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client import brokers, errors
from pylog.connector.client.cluster import EARLIEST, LATEST, Cluster
from pylog.connector.client.errors import (
    BrokerUnavailable,
    KafkaError,
    NotKafka,
    RetriableKafkaError,
    UnknownPartition,
    UnknownTopic,
)
from tests.connector.client.fake_kafka import (
    COMMIT,
    COMMITTED,
    COORDINATOR,
    CREATE,
    DELETE,
    LIST_OFFSETS,
    METADATA,
    TOPIC_ID,
    VERSIONS,
    FakeKafka,
    Fault,
)

Connect = Callable[..., Cluster]
LOST = [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.CUT_ANSWER]


def test_a_topics_partitions_and_id_are_asked_once(kafka: FakeKafka, connect: Connect) -> None:
    cluster = connect(kafka)
    assert cluster.partitions("orders") == [0, 1, 2]
    assert cluster.topic_id("orders") == TOPIC_ID
    assert len(kafka.asked(METADATA)) == 1


def test_what_is_known_is_believed_for_its_lifetime_only(kafka: FakeKafka, connect: Connect) -> None:
    cluster = connect(kafka, metadata_max_age_ms="0")
    cluster.partitions("orders")
    cluster.partitions("orders")
    assert len(kafka.asked(METADATA)) == 2


def test_an_unknown_topic_is_waited_for_shortly_and_then_named(
    kafka: FakeKafka, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "UNKNOWN_TOPIC_GRACE_MS", 20)
    with pytest.raises(UnknownTopic, match=r"'nothing' does not exist.*create it"):
        connect(kafka).partitions("nothing")
    assert len(kafka.asked(METADATA)) > 1
    assert not any(request.body.allow_auto_topic_creation for request in kafka.asked(METADATA))


def test_a_topic_is_created_when_asked_for_and_the_broker_does_so(kafka: FakeKafka, connect: Connect) -> None:
    kafka.auto_create = True
    assert connect(kafka).partitions("fresh", create=True) == [0]


def test_a_topic_that_has_no_leader_yet_is_waited_for(kafka: FakeKafka, connect: Connect) -> None:
    kafka.faults[METADATA] += [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert connect(kafka).partitions("orders") == [0, 1, 2]


def test_an_invalid_topic_is_refused_at_once(kafka: FakeKafka, connect: Connect) -> None:
    kafka.faults[METADATA].append(ErrorCode.INVALID_TOPIC_EXCEPTION)
    with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
        connect(kafka).partitions("a b")
    assert len(kafka.asked(METADATA)) == 1


def test_a_partition_that_was_added_is_found_and_one_that_is_not_there_is_named(
    kafka: FakeKafka, connect: Connect
) -> None:
    cluster = connect(kafka)
    cluster.partitions("orders")
    kafka.add_topic("orders", 4)
    assert cluster.leader("orders", 3) == 0
    with pytest.raises(UnknownPartition, match="0 to 3"):
        cluster.leader("orders", 4)


def test_every_bootstrap_address_is_tried(kafka: FakeKafka, connect: Connect) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{unused.getsockname()[1]}"
        assert connect(f"{dead},{kafka.bootstrap_servers}").partitions("orders") == [0, 1, 2]
        with pytest.raises(BrokerUnavailable, match="Connection refused") as raised:
            connect(f"{dead},nobody.invalid:1", default_api_timeout_ms="50").partitions("orders")
    assert [address for address, _ in raised.value.tried] == [dead, "nobody.invalid:1"]
    assert "given up after" in raised.value.__notes__[0]


def test_something_that_is_not_a_broker_is_not_asked_for_a_minute(kafka: FakeKafka, connect: Connect) -> None:
    kafka.faults[VERSIONS].append(Fault.HTTP)
    with pytest.raises(NotKafka):
        connect(kafka).partitions("orders")
    assert kafka.connections_opened == 1


def test_retries_are_limited_by_their_number_too(kafka: FakeKafka, connect: Connect) -> None:
    kafka.faults[LIST_OFFSETS] += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5
    with pytest.raises(RetriableKafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        connect(kafka, retries="2").latest([("orders", 0)])
    assert len(kafka.asked(LIST_OFFSETS)) == 3


def test_connections_are_used_again_and_dead_ones_are_not(kafka: FakeKafka, connect: Connect) -> None:
    cluster = connect(kafka, retries="0")
    for _ in range(3):
        cluster.latest([("orders", 0)])
    assert kafka.connections_opened == 1
    kafka.stop(0)
    kafka.start(0)
    cluster.latest([("orders", 0)])
    assert kafka.connections_opened == 2


def test_threads_share_a_cluster(kafka: FakeKafka, connect: Connect) -> None:
    cluster = connect(kafka)
    found: list[dict[tuple[str, int], int]] = []

    def ask() -> None:
        found.extend(cluster.latest([("orders", 0), ("orders", 1)]) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{("orders", 0): 0, ("orders", 1): 0}] * 80
    assert kafka.connections_opened <= 5


def test_one_process_has_one_cluster_per_configuration(kafka: FakeKafka, connect: Connect) -> None:
    config, other = connect(kafka).config, connect(kafka, acks="1").config
    assert Cluster.of(config) is Cluster.of(pickle.loads(pickle.dumps(config)))
    assert Cluster.of(config) is not Cluster.of(other)


# Offsets of logs


def test_offsets_are_asked_of_each_leader_in_one_request(connect: Connect) -> None:
    with FakeKafka({"orders": 4, "more": 2}, nodes=2) as kafka:
        kafka.logs["orders", 1].start, kafka.logs["orders", 1].end = 5, 9
        wanted = {("orders", 0): EARLIEST, ("orders", 1): EARLIEST, ("orders", 3): LATEST, ("more", 1): LATEST}
        assert connect(kafka).list_offsets(wanted) == {**dict.fromkeys(wanted, 0), ("orders", 1): 5}
        assert sorted(request.node for request in kafka.asked(LIST_OFFSETS)) == [0, 1]


def test_the_newest_time_is_not_asked_of_a_broker_that_would_take_it_for_a_time(
    kafka: FakeKafka, connect: Connect
) -> None:
    kafka.version_max[LIST_OFFSETS] = 6
    assert connect(kafka).newest_times_ms([("orders", 0)]) == {}
    assert not kafka.asked(LIST_OFFSETS)


def test_a_leader_that_moved_is_looked_for(connect: Connect) -> None:
    with FakeKafka({"orders": 2}, nodes=2) as kafka:
        cluster = connect(kafka)
        cluster.partitions("orders")
        kafka.leaders["orders", 0] = 1
        assert cluster.latest([("orders", 0), ("orders", 1)]) == {("orders", 0): 0, ("orders", 1): 0}


def test_a_leader_that_died_is_looked_for(connect: Connect) -> None:
    with FakeKafka({"orders": 2}, nodes=2) as kafka:
        cluster = connect(kafka)
        cluster.latest([("orders", 0), ("orders", 1)])
        kafka.stop(0)
        kafka.leaders["orders", 0] = 1
        assert cluster.latest([("orders", 0)]) == {("orders", 0): 0}


def test_an_advertised_address_that_nobody_answers_is_named_as_such(connect: Connect) -> None:
    with FakeKafka({"orders": 2}, nodes=2) as kafka:
        cluster = connect(kafka, default_api_timeout_ms="50")
        kafka.stop(1)
        with pytest.raises(BrokerUnavailable, match=r"broker 1 at .*where the cluster says it is"):
            cluster.latest([("orders", 1)])


@pytest.mark.parametrize("fault", [*LOST, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_listing_offsets_survives(kafka: FakeKafka, connect: Connect, fault: Fault | ErrorCode) -> None:
    kafka.faults[LIST_OFFSETS] += [fault, fault]
    assert connect(kafka).latest([("orders", 0)]) == {("orders", 0): 0}


# Offsets of groups


def test_committed_offsets_come_back_for_some_partitions_or_for_all(kafka: FakeKafka, connect: Connect) -> None:
    cluster = connect(kafka)
    cluster.commit_offsets("g", {("orders", 0): 5, ("orders", 2): 7})
    assert cluster.committed_offsets("g") == {("orders", 0): 5, ("orders", 2): 7}
    assert cluster.committed_offsets("g", [("orders", 0), ("orders", 1)]) == {("orders", 0): 5}
    assert cluster.committed_offsets("another") == {}
    assert len(kafka.asked(COORDINATOR)) == 2, "the coordinator of a group is asked for once"


def test_committing_nothing_asks_nobody(kafka: FakeKafka, connect: Connect) -> None:
    connect(kafka).commit_offsets("g", {})
    assert not kafka.requests


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        *((COMMIT, fault) for fault in LOST),
        (COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (COMMIT, ErrorCode.NOT_COORDINATOR),
        (COMMITTED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (COMMITTED, Fault.LOSE_ANSWER),
        (COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (COORDINATOR, Fault.LOSE_REQUEST),
    ],
)
@pytest.mark.parametrize("old", [False, True], ids=["newest versions", "before many keys at once"])
def test_group_offsets_survive(
    kafka: FakeKafka, connect: Connect, api: int, fault: Fault | ErrorCode, old: bool
) -> None:
    if old:
        kafka.version_max.update({COORDINATOR: 3, COMMITTED: 7, COMMIT: 7})
    cluster = connect(kafka)
    kafka.faults[api] += [fault, fault]
    cluster.commit_offsets("g", {("orders", 0): 5})
    assert cluster.committed_offsets("g") == {("orders", 0): 5}


def test_a_coordinator_that_moved_is_looked_for(connect: Connect) -> None:
    with FakeKafka({"orders": 1}, nodes=2) as kafka:
        cluster = connect(kafka)
        cluster.commit_offsets("g", {("orders", 0): 1})
        kafka.coordinator = 1
        cluster.commit_offsets("g", {("orders", 0): 2})
        assert cluster.committed_offsets("g") == {("orders", 0): 2}


def test_a_refused_commit_names_group_and_partition(kafka: FakeKafka, connect: Connect) -> None:
    kafka.faults[COMMIT].append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match=r"orders-0 for the group 'g'.*GROUP_AUTHORIZATION_FAILED"):
        connect(kafka).commit_offsets("g", {("orders", 0): 1})


# Topics


def test_topics_are_made_and_deleted(kafka: FakeKafka, connect: Connect) -> None:
    cluster = connect(kafka)
    cluster.create_topic("fresh", 2)
    assert cluster.partitions("fresh") == [0, 1]
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic("fresh", 2)
    cluster.create_topic("fresh", 2, exists_ok=True)
    cluster.delete_topic("fresh")
    with pytest.raises(UnknownTopic):
        cluster.delete_topic("fresh")


@pytest.mark.parametrize("fault", LOST)
def test_a_topic_whose_creation_was_done_but_not_heard_of_counts_as_made(
    kafka: FakeKafka, connect: Connect, fault: Fault
) -> None:
    cluster = connect(kafka)
    kafka.faults[CREATE].append(fault)
    cluster.create_topic("fresh", 2)
    kafka.faults[DELETE].append(fault)
    cluster.delete_topic("fresh")
    assert ("fresh", 0) not in kafka.logs


def test_every_error_survives_pickling_with_its_message() -> None:
    samples = [
        errors.BrokerUnavailable([("a:1", "refused")]),
        errors.ConnectionLost("a:1", "gone"),
        errors.NotKafka("a:1", "HTTP"),
        errors.UnsupportedVersion("a:1", "Fetch", (4, 12), None),
        errors.kafka_error(6, "fetching"),
        errors.kafka_error(9999, "fetching", "detail"),
        errors.UnknownTopic("t"),
        errors.TopicRemade("t", UUID(int=1), UUID(int=2)),
        errors.UnknownPartition("t", 1, 1),
        errors.OffsetOutOfRange("t", 0, 5, 6, 7),
        errors.RangeNotReached("t", 0, 5, 6, 5, 100),
        errors.CorruptRecords("t", 0, 5, "CRC"),
        errors.DeliveryFailed("t", 0, 5, "too large"),
    ]
    for error in samples:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))
