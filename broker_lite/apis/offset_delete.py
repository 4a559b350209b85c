"""OffsetDelete, key 47. A group forgets what it committed for partitions that it no longer reads."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED
from pylog.broker_lite.group_coordinator import code_of
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.offset_delete import (
    SPEC,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: OffsetDeleteRequest, request: Request) -> OffsetDeleteResponse:
    turn = Turn()
    existing: dict[tuple[str, int], None] = {}  # each once
    try:
        await broker.coordinator_ready()
        for topic in message.topics:
            for one in topic.partitions:
                if broker.exists(topic.name, one.partition_index):
                    existing[topic.name, one.partition_index] = None
                await turn.pause()
            await turn.pause()
        broker.coordinator_of(message.group_id)
        codes = await broker.coordinator.reply_of(broker.groups.delete_offsets(message.group_id, existing))
    except EXPECTED as error:
        return OffsetDeleteResponse(error_code=code_of(error))
    response = OffsetDeleteResponse()
    for topic in message.topics:
        result = OffsetDeleteResponseTopic(topic.name)
        response.topics.append(result)
        for one in topic.partitions:
            code = codes.get((topic.name, one.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            result.partitions.append(OffsetDeleteResponsePartition(one.partition_index, code))
            await turn.pause()
        await turn.pause()
    return response


API = declared(SPEC, handle)
