"""AlterPartitionReassignments, key 45. v0: flexible. v1: whether the number of replicas may change."""

from pylog.broker_lite.protocol.schema import array, boolean, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, None)  # None: what is under way is given up


@message
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(60_000)
    allow_replication_factor_change: bool = boolean(True, since=1)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@message
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None)


@message
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(True, since=1)
    error_code: int = int16()
    error_message: str | None = string(None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


SPEC = ApiSpec(
    "AlterPartitionReassignments", 45, 0, 1, 0, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
)
