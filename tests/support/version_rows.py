"""More rows for the test of every version: partitions and options, told of and changed."""

import socket
from collections.abc import Callable

import kafka.protocol.admin as admin
import kafka.protocol.consumer as consumer
import kafka.protocol.producer as producer

from pylog.storage.records import Record, encode_batch
from tests.support.kafka_python_requests import ask, topic_id_of

NOW_MS = 1_700_000_000_000


def _topic_with_two_records(connection: socket.socket, name: str) -> str:
    topic = admin.CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[], version=4
    )
    create = admin.CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=False, version=4)
    ask(connection, create, admin.CreateTopicsResponse, 4)
    batch = bytes(encode_batch([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, b"k", b"w")]))
    theirs = producer.ProduceRequest.TopicProduceData
    partition = theirs.PartitionProduceData(index=0, records=batch, version=7)
    data = theirs(name=name, partition_data=[partition], version=7)
    request = producer.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data], version=7)
    answered = ask(connection, request, producer.ProduceResponse, 7)
    assert answered.responses[0].partition_responses[0].error_code == 0
    return name


def delete_records(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"cut-{version}")
    theirs = admin.DeleteRecordsRequest.DeleteRecordsTopic
    for offset, found in ((1, (1, 0)), (7, (-1, 1)), (-1, (2, 0)), (0, (2, 0))):
        partition = theirs.DeleteRecordsPartition(partition_index=0, offset=offset, version=version)
        topic = theirs(name=name, partitions=[partition], version=version)
        request = admin.DeleteRecordsRequest(topics=[topic], timeout_ms=1000, version=version)
        (result,) = ask(connection, request, admin.DeleteRecordsResponse, version).topics[0].partitions
        assert (result.low_watermark, result.error_code) == found


def offset_for_leader_epoch(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"epoch-{version}")
    theirs = consumer.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    for epoch, found in ((0, (0, 0, 2)), (7, (0, -1, -1))):
        partition = theirs.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=-1, leader_epoch=epoch, version=version
        )
        topic = theirs(topic=name, partitions=[partition], version=version)
        request = consumer.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic], version=version)
        (result,) = ask(connection, request, consumer.OffsetForLeaderEpochResponse, version).topics[0].partitions
        assert (result.error_code, result.leader_epoch, result.end_offset) == found


def describe_cluster(connection: socket.socket, version: int) -> None:
    request = admin.DescribeClusterRequest(include_cluster_authorized_operations=True, version=version)
    answered = ask(connection, request, admin.DescribeClusterResponse, version)
    (broker,) = answered.brokers
    assert (answered.error_code, answered.controller_id) == (0, broker.broker_id)
    assert (broker.host, broker.port) == connection.getpeername()
    assert len(answered.cluster_id) == 22


def describe_log_dirs(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"sizes-{version}")
    theirs = admin.DescribeLogDirsRequest.DescribableLogDirTopic
    topics = [theirs(topic=name, partitions=[0, 9], version=version)]
    request = admin.DescribeLogDirsRequest(topics=topics, version=version)
    (found,) = ask(connection, request, admin.DescribeLogDirsResponse, version).results
    (partition,) = found.topics[0].partitions
    assert (found.error_code, found.topics[0].name, partition.partition_index) == (0, name, 0)
    assert partition.partition_size > 0
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    assert version < 4 or 0 < found.usable_bytes <= found.total_bytes


def describe_producers(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"producers-{version}")
    theirs = admin.DescribeProducersRequest.TopicRequest
    topics = [theirs(name=name, partition_indexes=[0, 9], version=version)]
    request = admin.DescribeProducersRequest(topics=topics, version=version)
    found, missing = ask(connection, request, admin.DescribeProducersResponse, version).topics[0].partitions
    assert (found.error_code, found.active_producers, missing.error_code) == (0, [], 3)


def describe_topic_partitions(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"partitions-{version}")
    theirs = admin.DescribeTopicPartitionsRequest.TopicRequest
    topics = [theirs(name=name, version=version), theirs(name="nowhere", version=version)]
    request = admin.DescribeTopicPartitionsRequest(
        topics=topics, response_partition_limit=2000, cursor=None, version=version
    )
    answered = ask(connection, request, admin.DescribeTopicPartitionsResponse, version)
    missing, found = answered.topics
    assert (missing.name, missing.error_code) == ("nowhere", 3)
    assert (found.name, found.error_code, found.topic_id) == (name, 0, topic_id_of(connection, name))
    assert [one.partition_index for one in found.partitions] == [0]
    assert answered.next_cursor is None


TOPIC_RESOURCE = 2


def _configured(connection: socket.socket, name: str, option: str) -> str:
    theirs = admin.DescribeConfigsRequest.DescribeConfigsResource
    resource = theirs(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[option], version=4)
    request = admin.DescribeConfigsRequest(resources=[resource], version=4)
    (result,) = ask(connection, request, admin.DescribeConfigsResponse, 4).results
    value: str = result.configs[0].value
    return value


def describe_configs(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"described-{version}")
    theirs = admin.DescribeConfigsRequest.DescribeConfigsResource
    resource = theirs(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["retention.ms"], version=version
    )
    request = admin.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True, version=version
    )
    (result,) = ask(connection, request, admin.DescribeConfigsResponse, version).results
    assert (result.error_code, result.resource_name) == (0, name)
    assert [(one.name, one.read_only) for one in result.configs] == [("retention.ms", False)]


def alter_configs(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"altered-{version}")
    theirs = admin.AlterConfigsRequest.AlterConfigsResource
    config = theirs.AlterableConfig(name="retention.ms", value=str(version + 5), version=version)
    resource = theirs(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config], version=version)
    request = admin.AlterConfigsRequest(resources=[resource], validate_only=False, version=version)
    (result,) = ask(connection, request, admin.AlterConfigsResponse, version).responses
    assert (result.error_code, result.resource_name) == (0, name)
    assert _configured(connection, name, "retention.ms") == str(version + 5)


def incremental_alter_configs(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"changed-{version}")
    theirs = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    config = theirs.AlterableConfig(name="retention.ms", config_operation=0, value=str(version + 5), version=version)
    resource = theirs(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config], version=version)
    request = admin.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False, version=version)
    (result,) = ask(connection, request, admin.IncrementalAlterConfigsResponse, version).responses
    assert (result.error_code, result.resource_name) == (0, name)
    assert _configured(connection, name, "retention.ms") == str(version + 5)


def create_partitions(connection: socket.socket, version: int) -> None:
    name = _topic_with_two_records(connection, f"grown-{version}")
    theirs = admin.CreatePartitionsRequest.CreatePartitionsTopic
    for count, code in ((3, 0), (2, 37)):
        topic = theirs(name=name, count=count, assignments=None, version=version)
        request = admin.CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False, version=version)
        (result,) = ask(connection, request, admin.CreatePartitionsResponse, version).results
        assert (result.name, result.error_code) == (name, code)


def list_config_resources(connection: socket.socket, version: int) -> None:
    kinds = {"resource_types": [TOPIC_RESOURCE]} if version >= 1 else {}
    answered = ask(
        connection,
        admin.ListConfigResourcesRequest(**kinds, version=version),
        admin.ListConfigResourcesResponse,
        version,
    )
    assert answered.error_code == 0
    names = {one.resource_name for one in answered.config_resources}
    assert ("versions" in names) == (version >= 1)


def elect_leaders(connection: socket.socket, version: int) -> None:
    theirs = admin.ElectLeadersRequest.TopicPartitions
    topics = [theirs(topic="versions", partitions=[0, 9], version=version)]
    request = admin.ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=1000, version=version)
    answered = ask(connection, request, admin.ElectLeadersResponse, version)
    (found,) = answered.replica_election_results
    assert [(one.partition_id, one.error_code) for one in found.partition_result] == [(0, 84), (9, 3)]


def alter_partition_reassignments(connection: socket.socket, version: int) -> None:
    theirs = admin.AlterPartitionReassignmentsRequest.ReassignableTopic
    wanted: list[tuple[int, list[int] | None]] = [(0, [1]), (0, None), (0, [2]), (9, [1])]
    partitions = [
        theirs.ReassignablePartition(partition_index=index, replicas=replicas, version=version)
        for index, replicas in wanted
    ]
    topics = [theirs(name="versions", partitions=partitions, version=version)]
    request = admin.AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=topics, version=version)
    answered = ask(connection, request, admin.AlterPartitionReassignmentsResponse, version)
    assert [one.error_code for one in answered.responses[0].partitions] == [0, 85, 39, 3]


def list_partition_reassignments(connection: socket.socket, version: int) -> None:
    request = admin.ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None, version=version)
    answered = ask(connection, request, admin.ListPartitionReassignmentsResponse, version)
    assert (answered.error_code, answered.topics) == (0, [])


def alter_replica_log_dirs(connection: socket.socket, version: int) -> None:
    request = admin.DescribeLogDirsRequest(topics=None, version=4)
    (found,) = ask(connection, request, admin.DescribeLogDirsResponse, 4).results
    theirs = admin.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    for path, codes in ((found.log_dir, [0, 3]), ("/nowhere", [57, 57])):
        topics = [theirs.AlterReplicaLogDirTopic(name="versions", partitions=[0, 9], version=version)]
        move = admin.AlterReplicaLogDirsRequest(
            dirs=[theirs(path=path, topics=topics, version=version)], version=version
        )
        answered = ask(connection, move, admin.AlterReplicaLogDirsResponse, version)
        assert [one.error_code for one in answered.results[0].partitions] == codes


def describe_quorum(connection: socket.socket, version: int) -> None:
    theirs = admin.DescribeQuorumRequest.TopicData
    partitions = [theirs.PartitionData(partition_index=0, version=version)]
    topics = [theirs(topic_name="__cluster_metadata", partitions=partitions, version=version)]
    answered = ask(
        connection, admin.DescribeQuorumRequest(topics=topics, version=version), admin.DescribeQuorumResponse, version
    )
    (found,) = answered.topics[0].partitions
    (voter,) = found.current_voters
    assert (answered.error_code, found.error_code, found.leader_id) == (0, 0, voter.replica_id)
    assert found.high_watermark == voter.log_end_offset > 0


def update_features(connection: socket.socket, version: int) -> None:
    theirs = admin.UpdateFeaturesRequest.FeatureUpdateKey
    for name, code in (("group.version", 0), ("nosuch", 95)):
        update = theirs(feature=name, max_version_level=0, version=version)
        request = admin.UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update], version=version)
        answered = ask(connection, request, admin.UpdateFeaturesResponse, version)
        assert answered.error_code == code
        assert version > 1 or len(answered.results) == (code == 0)


_ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def describe_acls(connection: socket.socket, version: int) -> None:
    request = admin.DescribeAclsRequest(**_ANY, version=version)
    assert ask(connection, request, admin.DescribeAclsResponse, version).error_code == 54


def create_acls(connection: socket.socket, version: int) -> None:
    creation = admin.CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="versions",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
        version=version,
    )
    request = admin.CreateAclsRequest(creations=[creation], version=version)
    answered = ask(connection, request, admin.CreateAclsResponse, version)
    assert [one.error_code for one in answered.results] == [54]


def delete_acls(connection: socket.socket, version: int) -> None:
    one = admin.DeleteAclsRequest.DeleteAclsFilter(**_ANY, version=version)
    request = admin.DeleteAclsRequest(filters=[one], version=version)
    answered = ask(connection, request, admin.DeleteAclsResponse, version)
    assert [one.error_code for one in answered.filter_results] == [54]


def list_transactions(connection: socket.socket, version: int) -> None:
    request = admin.ListTransactionsRequest(
        state_filters=["Ongoing", "nosuch"], producer_id_filters=[], version=version
    )
    answered = ask(connection, request, admin.ListTransactionsResponse, version)
    assert (answered.error_code, answered.transaction_states) == (0, [])
    assert answered.unknown_state_filters == ["nosuch"]


def describe_user_scram_credentials(connection: socket.socket, version: int) -> None:
    theirs = admin.DescribeUserScramCredentialsRequest.UserName
    users = [theirs(name=name, version=version) for name in ("a", "b", "b")]
    request = admin.DescribeUserScramCredentialsRequest(users=users, version=version)
    answered = ask(connection, request, admin.DescribeUserScramCredentialsResponse, version)
    assert [(one.user, one.error_code) for one in answered.results] == [("a", 91), ("b", 92)]


def _alter_quota(connection: socket.socket, version: int, *, remove: bool) -> None:
    theirs = admin.AlterClientQuotasRequest.EntryData
    entity = [theirs.EntityData(entity_type="client-id", entity_name=f"v{version}", version=version)]
    ops = [theirs.OpData(key="producer_byte_rate", value=1e9, remove=remove, version=version)]
    entries = [theirs(entity=entity, ops=ops, version=version)]
    request = admin.AlterClientQuotasRequest(entries=entries, validate_only=False, version=version)
    (result,) = ask(connection, request, admin.AlterClientQuotasResponse, version).entries
    assert (result.error_code, result.entity[0].entity_name) == (0, f"v{version}")


def _quotas(connection: socket.socket, version: int) -> list[tuple[str, float]]:
    theirs = admin.DescribeClientQuotasRequest.ComponentData
    component = theirs(entity_type="client-id", match_type=0, match=f"v{version}", version=version)
    request = admin.DescribeClientQuotasRequest(components=[component], strict=True, version=version)
    answered = ask(connection, request, admin.DescribeClientQuotasResponse, version)
    assert answered.error_code == 0
    return [(value.key, value.value) for entry in answered.entries for value in entry.values]


def client_quotas(connection: socket.socket, version: int) -> None:
    _alter_quota(connection, version, remove=False)
    assert _quotas(connection, version) == [("producer_byte_rate", 1e9)]
    _alter_quota(connection, version, remove=True)
    assert _quotas(connection, version) == []


MORE: dict[int, Callable[[socket.socket, int], None]] = {
    21: delete_records,
    23: offset_for_leader_epoch,
    35: describe_log_dirs,
    60: describe_cluster,
    61: describe_producers,
    32: describe_configs,
    33: alter_configs,
    37: create_partitions,
    44: incremental_alter_configs,
    74: list_config_resources,
    43: elect_leaders,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    75: describe_topic_partitions,
    29: describe_acls,
    30: create_acls,
    31: delete_acls,
    34: alter_replica_log_dirs,
    48: client_quotas,
    49: client_quotas,
    50: describe_user_scram_credentials,
    55: describe_quorum,
    57: update_features,
    66: list_transactions,
}
