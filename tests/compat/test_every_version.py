"""Every version that is advertised is answered, judged by kafka-python's messages over a plain socket."""

import socket
from typing import Any

import kafka.protocol.admin as admin
import kafka.protocol.consumer as consumer
import kafka.protocol.metadata as metadata
import kafka.protocol.producer as producer
import pytest

from pylog.broker_lite.api_table import API_BY_KEY
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.support.foreign_clients import CLIENTS
from tests.support.kafka_python_requests import ask, topic_id_of
from tests.support.version_rows import MORE

NOW_MS = 1_700_000_000_000
BATCH = bytes(encode_batch([Record(0, NOW_MS, b"k", b"v")]))
TOPIC = "versions"

CASES = [
    pytest.param(api.spec.key, version, id=f"{api.spec.name} v{version}")
    for api in API_BY_KEY.values()
    for version in range(api.spec.version_min, api.spec.version_max + 1)
]


@pytest.fixture(scope="module")
def connection(servers: str) -> Any:
    CLIENTS["kafka-python"].create_topic(servers, TOPIC, 1)
    host, port = servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connected:
        yield connected


@pytest.mark.parametrize(("key", "version"), CASES)
def test_every_version_is_answered(connection: socket.socket, key: int, version: int) -> None:
    ASK[key](connection, version)


def api_versions(connection: socket.socket, version: int) -> None:
    request = metadata.ApiVersionsRequest(client_software_name="x", client_software_version="1", version=version)
    answered = ask(connection, request, metadata.ApiVersionsResponse, version)
    assert answered.error_code == 0
    ranges = {one.api_key: (one.min_version, one.max_version) for one in answered.api_keys}
    assert set(ranges) == set(API_BY_KEY)
    assert all(low <= high for low, high in ranges.values())
    traps = [(0, 0), (0, 3), (0, 7), (1, 4), (1, 10), (2, 1), (10, 0), (8, 2), (9, 1), (22, 0), (18, 0)]
    for trap in [*traps, (11, 0), (12, 0), (13, 0), (14, 0)]:
        assert ranges[trap[0]][0] <= trap[1] <= ranges[trap[0]][1]  # old librdkafka tests for these


def metadata_(connection: socket.socket, version: int) -> None:
    topics = [metadata.MetadataRequest.MetadataRequestTopic(name=TOPIC, version=version)]
    request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False, version=version)
    answered = ask(connection, request, metadata.MetadataResponse, version)
    (broker,), (topic,) = answered.brokers, answered.topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, TOPIC, 1)
    assert topic.partitions[0].leader_id == broker.node_id
    assert connection.getpeername() == (broker.host, broker.port)


def produce(connection: socket.socket, version: int) -> None:
    partition = producer.ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=BATCH, version=version)
    named = {"topic_id": topic_id_of(connection, TOPIC)} if version >= 13 else {"name": TOPIC}
    topic = producer.ProduceRequest.TopicProduceData(**named, partition_data=[partition], version=version)
    request = producer.ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic], version=version
    )
    answered = ask(connection, request, producer.ProduceResponse, version)
    (result,) = answered.responses[0].partition_responses
    assert {name: getattr(answered.responses[0], name) for name in named} == named
    assert (result.index, result.error_code) == (0, 0)
    assert result.base_offset >= 0
    assert fetch_records(connection, 12, result.base_offset)[0] == Record(result.base_offset, NOW_MS, b"k", b"v")


def fetch_records(connection: socket.socket, version: int, offset: int) -> list[Record]:
    partition = consumer.FetchRequest.FetchTopic.FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=-1,
        log_start_offset=-1,
        version=version,
    )
    named = {"topic_id": topic_id_of(connection, TOPIC)} if version >= 13 else {"topic": TOPIC}
    topic = consumer.FetchRequest.FetchTopic(**named, partitions=[partition], version=version)
    request = consumer.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[topic],
        forgotten_topics_data=[],
        rack_id="",
        version=version,
    )
    answered = ask(connection, request, consumer.FetchResponse, version)
    (found,) = answered.responses[0].partitions
    assert {name: getattr(answered.responses[0], name) for name in named} == named
    assert (found.partition_index, found.error_code) == (0, 0)
    return decode_batch(bytes(found.records))


def fetch(connection: socket.socket, version: int) -> None:
    produce(connection, 7)
    assert fetch_records(connection, version, 0)[0] == Record(0, NOW_MS, b"k", b"v")


def list_offsets(connection: socket.socket, version: int) -> None:
    produce(connection, 7)
    partition = consumer.ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-2, version=version
    )
    topic = consumer.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[partition], version=version)
    request = consumer.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic], version=version)
    answered = ask(connection, request, consumer.ListOffsetsResponse, version)
    (found,) = answered.topics[0].partitions
    assert (found.error_code, found.offset) == (0, 0)


def offset_commit(connection: socket.socket, version: int) -> None:
    partition = consumer.OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=version, committed_metadata="m", version=version
    )
    named = {"topic_id": topic_id_of(connection, TOPIC)} if version >= 10 else {"name": TOPIC}
    topic = consumer.OffsetCommitRequest.OffsetCommitRequestTopic(**named, partitions=[partition], version=version)
    request = consumer.OffsetCommitRequest(group_id="g", member_id="", topics=[topic], version=version)
    answered = ask(connection, request, consumer.OffsetCommitResponse, version)
    assert answered.topics[0].partitions[0].error_code == 0
    assert committed(connection, 1) == (version, "m")


def committed(connection: socket.socket, version: int) -> tuple[int, str]:
    theirs = consumer.OffsetFetchRequest
    if version >= 8:
        named = {"topic_id": topic_id_of(connection, TOPIC)} if version >= 10 else {"name": TOPIC}
        topic = theirs.OffsetFetchRequestGroup.OffsetFetchRequestTopics(**named, partition_indexes=[0], version=version)
        group = theirs.OffsetFetchRequestGroup(group_id="g", topics=[topic], version=version)
        answered = ask(connection, theirs(groups=[group], version=version), consumer.OffsetFetchResponse, version)
        assert (answered.groups[0].group_id, answered.groups[0].error_code) == ("g", 0)
        (found,) = answered.groups[0].topics[0].partitions
    else:
        topic = theirs.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0], version=version)
        request = theirs(group_id="g", topics=[topic], version=version)
        (found,) = ask(connection, request, consumer.OffsetFetchResponse, version).topics[0].partitions
    assert found.error_code == 0
    return found.committed_offset, found.metadata


def offset_fetch(connection: socket.socket, version: int) -> None:
    offset_commit(connection, 9)
    assert committed(connection, version) == (9, "m")


def find_coordinator(connection: socket.socket, version: int) -> None:
    request = metadata.FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"], version=version)
    answered = ask(connection, request, metadata.FindCoordinatorResponse, version)
    found = answered.coordinators[0] if version >= 4 else answered
    assert found.error_code == 0
    assert (found.host, found.port) == connection.getpeername()


def create_topics(connection: socket.socket, version: int) -> None:
    topic = admin.CreateTopicsRequest.CreatableTopic(
        name=f"created-{version}", num_partitions=1, replication_factor=1, assignments=[], configs=[], version=version
    )
    request = admin.CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=False, version=version)
    (made,) = ask(connection, request, admin.CreateTopicsResponse, version).topics
    assert made.error_code == 0
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (1, 1)
        assert made.configs is not None  # Java's admin client does not survive null


def delete_topics(connection: socket.socket, version: int) -> None:
    name = f"deleted-{version}"
    topic = admin.CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[], version=4
    )
    create = admin.CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=False, version=4)
    ask(connection, create, admin.CreateTopicsResponse, 4)
    if version >= 6:
        states = [admin.DeleteTopicsRequest.DeleteTopicState(name=name, version=version)]
        request = admin.DeleteTopicsRequest(topics=states, timeout_ms=1000, version=version)
    else:
        request = admin.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000, version=version)
    (gone,) = ask(connection, request, admin.DeleteTopicsResponse, version).responses
    assert (gone.name, gone.error_code) == (name, 0)


def init_producer_id(connection: socket.socket, version: int) -> None:
    given = set()
    for _ in range(3):
        request = producer.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, version=version)
        answered = ask(connection, request, producer.InitProducerIdResponse, version)
        assert answered.error_code == 0
        given.add(answered.producer_id)
    assert len(given) == 3


def joined(connection: socket.socket, group: str, version: int) -> tuple[str, int]:
    """A new group's only member: its id, and the generation."""
    theirs = consumer.JoinGroupRequest
    member_id = ""
    for _ in range(2):  # since v4 a member asks for its id first
        protocol = theirs.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0", version=version)
        request = theirs(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[protocol],
            version=version,
        )
        answered = ask(connection, request, consumer.JoinGroupResponse, version)
        member_id = answered.member_id
        if version < 4 or answered.error_code != 79:
            break
    assert (answered.error_code, answered.protocol_name, answered.leader) == (0, "range", member_id)
    assert [one.member_id for one in answered.members] == [member_id]
    return member_id, answered.generation_id


def synced(connection: socket.socket, group: str, version: int) -> tuple[str, int]:
    member_id, generation = joined(connection, group, 5)
    theirs = consumer.SyncGroupRequest
    assignment = theirs.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine", version=version)
    request = theirs(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
        version=version,
    )
    answered = ask(connection, request, consumer.SyncGroupResponse, version)
    assert (answered.error_code, bytes(answered.assignment)) == (0, b"mine")
    return member_id, generation


def left(connection: socket.socket, group: str, member_id: str, version: int) -> None:
    theirs = consumer.LeaveGroupRequest
    if version >= 3:
        identity = theirs.MemberIdentity(member_id=member_id, group_instance_id=None, reason=None, version=version)
        request = theirs(group_id=group, members=[identity], version=version)
    else:
        request = theirs(group_id=group, member_id=member_id, version=version)
    answered = ask(connection, request, consumer.LeaveGroupResponse, version)
    assert answered.error_code == 0
    assert version < 3 or [(one.member_id, one.error_code) for one in answered.members] == [(member_id, 0)]


def join_group(connection: socket.socket, version: int) -> None:
    joined(connection, f"join-{version}", version)


def sync_group(connection: socket.socket, version: int) -> None:
    synced(connection, f"sync-{version}", version)


def heartbeat(connection: socket.socket, version: int) -> None:
    member_id, generation = synced(connection, f"heartbeat-{version}", 3)
    for asked_generation, code in ((generation, 0), (generation + 1, 22)):
        request = consumer.HeartbeatRequest(
            group_id=f"heartbeat-{version}",
            generation_id=asked_generation,
            member_id=member_id,
            group_instance_id=None,
            version=version,
        )
        assert ask(connection, request, consumer.HeartbeatResponse, version).error_code == code


def leave_group(connection: socket.socket, version: int) -> None:
    member_id, _ = synced(connection, f"leave-{version}", 3)
    left(connection, f"leave-{version}", member_id, version)


def describe_groups(connection: socket.socket, version: int) -> None:
    name = f"describe-{version}"
    member_id, _ = synced(connection, name, 3)
    request = admin.DescribeGroupsRequest(groups=[name, "nobody"], include_authorized_operations=True, version=version)
    found, missing = ask(connection, request, admin.DescribeGroupsResponse, version).groups
    assert (found.error_code, found.group_state, found.protocol_data) == (0, "Stable", "range")
    assert [(one.member_id, one.client_id) for one in found.members] == [(member_id, "versions")]
    assert (missing.error_code, missing.group_state) == (69 if version >= 6 else 0, "Dead")
    assert version < 3 or set(found.authorized_operations) == {3, 6, 8, 10, 11}  # read, delete, describe; configs


def list_groups(connection: socket.socket, version: int) -> None:
    name = f"list-{version}"
    synced(connection, name, 3)
    request = admin.ListGroupsRequest(states_filter=["Stable"], types_filter=["Classic"], version=version)
    answered = ask(connection, request, admin.ListGroupsResponse, version)
    assert answered.error_code == 0
    (found,) = [one for one in answered.groups if one.group_id == name]
    assert found.protocol_type == "consumer"
    assert version < 4 or found.group_state == "Stable"
    assert version < 5 or found.group_type == "classic"


def delete_groups(connection: socket.socket, version: int) -> None:
    empty, busy = f"delete-{version}", f"delete-busy-{version}"
    left(connection, empty, synced(connection, empty, 3)[0], 3)
    synced(connection, busy, 3)
    request = admin.DeleteGroupsRequest(groups_names=[empty, busy, "nobody"], version=version)
    results = ask(connection, request, admin.DeleteGroupsResponse, version).results
    assert [(one.group_id, one.error_code) for one in results] == [(empty, 0), (busy, 68), ("nobody", 69)]


def offset_delete(connection: socket.socket, version: int) -> None:
    offset_commit(connection, 8)
    theirs = consumer.OffsetDeleteRequest.OffsetDeleteRequestTopic
    partitions = [theirs.OffsetDeleteRequestPartition(partition_index=index, version=version) for index in (0, 7)]
    topic = theirs(name=TOPIC, partitions=partitions, version=version)
    request = consumer.OffsetDeleteRequest(group_id="g", topics=[topic], version=version)
    answered = ask(connection, request, consumer.OffsetDeleteResponse, version)
    assert answered.error_code == 0
    assert [(one.partition_index, one.error_code) for one in answered.topics[0].partitions] == [(0, 0), (7, 3)]
    assert committed(connection, 1)[0] == -1


ASK = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata_,
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    18: api_versions,
    19: create_topics,
    20: delete_topics,
    22: init_producer_id,
    42: delete_groups,
    47: offset_delete,
    **MORE,
}
