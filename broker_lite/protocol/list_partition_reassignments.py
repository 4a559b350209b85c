"""ListPartitionReassignments, key 46. v0: flexible."""

from pylog.broker_lite.protocol.schema import array, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: list[int] = array(int32)


@message
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(ListPartitionReassignmentsTopics, None)


@message
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


@message
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


SPEC = ApiSpec(
    "ListPartitionReassignments", 46, 0, 0, 0, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
)
