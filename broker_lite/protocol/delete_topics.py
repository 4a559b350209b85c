"""DeleteTopics, key 20. v4: flexible. v5: error messages. v6: topics by name or by id."""

from uuid import UUID

from pylog.broker_lite.protocol.schema import array, int16, int32, message, string, uuid
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class DeleteTopicState:
    name: str | None = string(None)
    topic_id: UUID = uuid()


@message
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5)
    timeout_ms: int = int32()


@message
class DeletableTopicResult:
    name: str | None = string(null_since=6)
    topic_id: UUID = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string(None, since=5)


@message
class DeleteTopicsResponse:
    throttle_time_ms: int = int32(since=1)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


SPEC = ApiSpec("DeleteTopics", 20, 1, 6, 4, DeleteTopicsRequest, DeleteTopicsResponse)
