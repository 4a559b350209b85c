"""CreatePartitions, key 37. v2: flexible. v3: quotas."""

from pylog.broker_lite.protocol.schema import array, boolean, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(int32)


@message
class CreatePartitionsTopic:
    """`count` is what the topic is to have then; `assignments`, if any, are those of the new partitions."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, null_since=0)


@message
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@message
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(None)


@message
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


SPEC = ApiSpec("CreatePartitions", 37, 0, 3, 2, CreatePartitionsRequest, CreatePartitionsResponse)
