"""DeleteTopics, key 20. v3: a code for deletion that is disabled. v6: by name or by id.

The topics are gone at once, their files soon after."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

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
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_TOPICS_A_TURN = 20


async def handle(broker: "Broker", message: DeleteTopicsRequest, request: Request) -> DeleteTopicsResponse:
    turn = Turn()
    times: Counter[tuple[str | None, UUID]] = Counter()
    for state in message.topics:
        times[state.name, state.topic_id] += 1
        await turn.pause()
    for name in () if message.topics else message.topic_names:
        times[name, ZERO_UUID] += 1
        await turn.pause()
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

    results: dict[tuple[str | None, UUID], DeletableTopicResult] = {}
    deletions: dict[tuple[str | None, UUID], asyncio.Task[DeletableTopicResult]] = {}
    for key in times:
        if key[0] in broker.topics.by_name or key[1] in broker.topics.by_id:
            deletions[key] = asyncio.ensure_future(delete(DeleteTopicState(*key)))
            if len(deletions) % _TOPICS_A_TURN == 0:
                await asyncio.sleep(0)  # these begin, and others have their turn
        else:
            results[key] = await delete(DeleteTopicState(*key))
        await turn.pause()
    for key, deletion in deletions.items():
        results[key] = await deletion
    return DeleteTopicsResponse(responses=[results[key] for key in times])


API = declared(SPEC, handle)
