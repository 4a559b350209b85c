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

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: OffsetDeleteRequest, request: Request) -> OffsetDeleteResponse:
    places = [(topic.name, one.partition_index) for topic in message.topics for one in topic.partitions]
    try:
        await broker.coordinator_ready()
        broker.coordinator_of(message.group_id)
        existing = [place for place in places if broker.exists(*place)]
        codes = await broker.coordinator.reply_of(broker.groups.delete_offsets(message.group_id, existing))
    except EXPECTED as error:
        return OffsetDeleteResponse(error_code=code_of(error))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        one.partition_index,
                        codes.get((topic.name, one.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


API = declared(SPEC, handle)
