"""CreateTopics, key 19. v4: -1 partitions or replicas mean the broker's default. v5: flexible, and the answer
tells what was made. v6: quotas. v7: topic ids.

`configs` of the answer is a list, never null: Java's admin client does not survive null.
"""

from uuid import UUID

from pylog.broker_lite.protocol.schema import array, boolean, int8, int16, int32, message, string, uuid
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@message
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(null_since=0)


@message
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(60_000)
    validate_only: bool = boolean(since=1)


@message
class CreatableTopicConfigs:
    name: str = string()
    value: str | None = string(null_since=0)
    read_only: bool = boolean()
    config_source: int = int8(-1)
    is_sensitive: bool = boolean()


@message
class CreatableTopicResult:
    name: str = string()
    topic_id: UUID = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = string(None, since=1)
    topic_config_error_code: int = int16(since=5, tag=0)
    num_partitions: int = int32(-1, since=5)
    replication_factor: int = int16(-1, since=5)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, null_since=5)


@message
class CreateTopicsResponse:
    throttle_time_ms: int = int32(since=2)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


SPEC = ApiSpec("CreateTopics", 19, 2, 7, 5, CreateTopicsRequest, CreateTopicsResponse)
