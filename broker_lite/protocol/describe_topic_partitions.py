"""DescribeTopicPartitions, key 75. v0: flexible. So many partitions at a time; a cursor tells where to go on."""

from uuid import UUID

from pylog.broker_lite.protocol.schema import array, boolean, int16, int32, message, string, struct_or_null, uuid
from pylog.broker_lite.protocol.spec import ApiSpec

OPERATIONS_NOT_ASKED_FOR = -(1 << 31)


@message
class TopicRequest:
    name: str = string()


@message
class Cursor:
    topic_name: str = string()
    partition_index: int = int32()


@message
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(2000)
    cursor: Cursor | None = struct_or_null(Cursor)


@message
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, None)
    last_known_elr: list[int] | None = array(int32, None)
    offline_replicas: list[int] = array(int32)


@message
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(null_since=0)
    topic_id: UUID = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(OPERATIONS_NOT_ASKED_FOR)


@message
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct_or_null(Cursor)


SPEC = ApiSpec("DescribeTopicPartitions", 75, 0, 0, 0, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
