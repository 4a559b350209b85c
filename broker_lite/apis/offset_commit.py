"""OffsetCommit, key 8. The answer follows when the offsets are in `__consumer_offsets`."""

import asyncio
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, error_of
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.offset_commit import (
    SPEC,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: OffsetCommitRequest, request: Request) -> OffsetCommitResponse:
    try:
        await broker.coordinator_ready()
        errors, flushed = _commit(broker, message)
        if flushed is not None:
            await flushed
    except EXPECTED as error:
        code = error_of(error)[0]
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            code = ErrorCode.NOT_COORDINATOR  # what clients of a coordinator know how to wait for
        errors = {(topic.name, one.partition_index): code for topic in message.topics for one in topic.partitions}
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(one.partition_index, errors[topic.name, one.partition_index])
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _commit(
    broker: "Broker", message: OffsetCommitRequest
) -> tuple[dict[tuple[str, int], ErrorCode], asyncio.Future[None] | None]:
    """By partition the code; and what is to be awaited before the answer."""
    broker.coordinator_of(message.group_id)
    now_ms = broker.now_ms()
    commits: dict[tuple[str, int], CommittedOffset] = {}
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in message.topics:
        for one in topic.partitions:
            place = (topic.name, one.partition_index)
            if not broker.exists(*place):
                errors[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            commits[place] = CommittedOffset(
                one.committed_offset, one.committed_leader_epoch, one.committed_metadata or "", now_ms
            )
    outcome = broker.offsets.commit(message.group_id, message.generation_id, commits)
    flushed = broker.change_offsets(message.group_id, outcome.events)
    return errors | outcome.reply, flushed


API = declared(SPEC, handle)
