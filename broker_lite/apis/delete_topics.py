"""DeleteTopics, key 20. v6: by name or by id. The topics are gone at once, their files soon after."""

import asyncio
from collections import Counter
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
from pylog.broker_lite.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_KNOWS_DISABLED_SINCE = 3


async def handle(broker: "Broker", message: DeleteTopicsRequest, request: Request) -> DeleteTopicsResponse:
    asked = message.topics or [DeleteTopicState(name) for name in message.topic_names]
    times = Counter((state.name, state.topic_id) for state in asked)
    states = [DeleteTopicState(name, topic_id) for name, topic_id in times]
    disabled = None
    if not broker.config["delete.topic.enable"]:
        known = request.version >= _KNOWS_DISABLED_SINCE
        disabled = RequestError(
            ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST,
            "delete.topic.enable is false on this broker.",
        )
    results = [_delete(broker, state, times[state.name, state.topic_id], disabled) for state in states]
    return DeleteTopicsResponse(responses=list(await asyncio.gather(*results)))


async def _delete(
    broker: "Broker", state: DeleteTopicState, times: int, disabled: RequestError | None
) -> DeletableTopicResult:
    try:
        if disabled is not None:
            raise disabled
        if times > 1:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The topic is in the request twice.")
        if (state.name is None) == (state.topic_id == ZERO_UUID):
            raise RequestError(ErrorCode.INVALID_REQUEST, "Name the topic by its name, or by its id, not both.")
        topic = await broker.delete_topic(state.name, state.topic_id)
        return DeletableTopicResult(topic.name, topic.topic_id)
    except EXPECTED as error:
        code, text = error_of(error)
        return DeletableTopicResult(state.name, state.topic_id, code, text)


API = declared(SPEC, handle)
