"""DeleteTopics, key 20. v3: a code for deletion that is disabled. v6: by name or by id.

The topics are gone at once, their files soon after."""

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
from pylog.broker_lite.time_limit import TimeLimit

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_TOPICS_A_TURN = 20


async def handle(broker: "Broker", message: DeleteTopicsRequest, request: Request) -> DeleteTopicsResponse:
    asked = message.topics or [DeleteTopicState(name) for name in message.topic_names]
    times = Counter((state.name, state.topic_id) for state in asked)
    states = [DeleteTopicState(name, topic_id) for name, topic_id in times]
    limit = TimeLimit(message.timeout_ms)
    enabled = broker.config["delete.topic.enable"]
    disabled = ErrorCode.TOPIC_DELETION_DISABLED if request.version >= 3 else ErrorCode.INVALID_REQUEST

    async def delete(state: DeleteTopicState) -> DeletableTopicResult:
        try:
            limit.check()
            if not enabled:
                raise RequestError(disabled, "delete.topic.enable is false on this broker.")
            if times[state.name, state.topic_id] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "The topic is in the request twice.")
            if (state.name is None) == (state.topic_id == ZERO_UUID):
                raise RequestError(ErrorCode.INVALID_REQUEST, "Name the topic by its name, or by its id, not both.")
            topic = await limit.wait_for(broker.delete_topic(state.name, state.topic_id))
            return DeletableTopicResult(topic.name, topic.topic_id)
        except EXPECTED as error:
            code, text = error_of(error)
            return DeletableTopicResult(state.name, state.topic_id, code, text)

    deletions = []
    for start in range(0, len(states), _TOPICS_A_TURN):
        deletions += [asyncio.ensure_future(delete(state)) for state in states[start : start + _TOPICS_A_TURN]]
        await asyncio.sleep(0)  # others have their turn
    return DeleteTopicsResponse(responses=list(await asyncio.gather(*deletions)))


API = declared(SPEC, handle)
