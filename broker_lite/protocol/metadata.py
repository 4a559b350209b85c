"""Metadata, key 3. v1: null asks for all topics, rack, controller, internal topics. v2: cluster id. v3: throttle.
v4: auto-creation. v5: offline replicas. v7: leader epoch. v8: authorized operations. v9: flexible. v10: topic ids.
v11: no cluster operations. v12: topics by id alone. v13: an error code for the whole answer.

In v0 an empty list asks for all topics, since v1 for none.
"""

from uuid import UUID

from pylog.broker_lite.protocol.schema import array, boolean, int16, int32, message, string, uuid
from pylog.broker_lite.protocol.spec import ApiSpec

IDS_SINCE = 12
OPERATIONS_NOT_ASKED_FOR = -(1 << 31)


@message
class MetadataRequestTopic:
    topic_id: UUID = uuid(since=10)
    name: str | None = string(null_since=10)


@message
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, null_since=1)
    allow_auto_topic_creation: bool = boolean(True, since=4)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


@message
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(None, since=1)


@message
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(-1, since=7)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5)


@message
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(null_since=12)
    topic_id: UUID = uuid(since=10)
    is_internal: bool = boolean(since=1)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(OPERATIONS_NOT_ASKED_FOR, since=8)


@message
class MetadataResponse:
    throttle_time_ms: int = int32(since=3)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(None, since=2)
    controller_id: int = int32(-1, since=1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(OPERATIONS_NOT_ASKED_FOR, since=8, until=10)
    error_code: int = int16(since=13)


SPEC = ApiSpec("Metadata", 3, 0, 13, 9, MetadataRequest, MetadataResponse)
