"""DeleteTopics, key 20. v6: by name or by id. The topic is gone at once, its files soon after."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.protocol.delete_topics import (
    SPEC,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pylog.broker_lite.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: DeleteTopicsRequest, request: Request) -> DeleteTopicsResponse:
    asked = message.topics or [DeleteTopicState(name) for name in message.topic_names]
    return DeleteTopicsResponse(responses=[await _delete(broker, state) for state in asked])


async def _delete(broker: "Broker", state: DeleteTopicState) -> DeletableTopicResult:
    try:
        if not broker.config["delete.topic.enable"]:
            raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker.")
        topic = await broker.delete_topic(state.name, state.topic_id)
        return DeletableTopicResult(topic.name, topic.topic_id)
    except EXPECTED as error:
        code, text = error_of(error)
        return DeletableTopicResult(state.name, state.topic_id, code, text)


API = declared(SPEC, handle)
