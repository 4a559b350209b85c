"""OffsetCommit, key 8. The answer follows when the offsets are in `__consumer_offsets`."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.config_types import INT64_MAX
from pylog.broker_lite.errors import EXPECTED, error_of
from pylog.broker_lite.group_coordinator import check_name, code_of
from pylog.broker_lite.machines.offsets import CommittedOffset, Place
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.offset_commit import (
    IDS_SINCE,
    RETENTION_OF_THE_BROKER,
    SPEC,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: OffsetCommitRequest, request: Request) -> OffsetCommitResponse:
    if request.version >= IDS_SINCE:
        for topic in message.topics:
            topic.name = broker.topics.name_of(topic.topic_id.bytes) or ""
    turn = Turn()
    commits, errors = await _by_partition(broker, message, turn)
    try:
        check_name(message.group_id, ErrorCode.INVALID_GROUP_ID)
        await broker.coordinator_ready()
        broker.coordinator_of(message.group_id)
        outcome = broker.groups.commit(message, request.version, commits, broker.coordinator.now())
        codes = await broker.coordinator.reply_of(outcome)
        errors |= codes
    except EXPECTED as error:
        code = code_of(error)
        if error_of(error)[0] in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        errors |= dict.fromkeys(commits, code)
    response = OffsetCommitResponse()
    for topic in message.topics:
        if topic.partitions:
            result = OffsetCommitResponseTopic(topic.name, topic.topic_id)
            response.topics.append(result)
            for one in topic.partitions:
                code = errors[topic.name, one.partition_index]
                result.partitions.append(OffsetCommitResponsePartition(one.partition_index, code))
                await turn.pause()
        await turn.pause()
    return response


async def _by_partition(
    broker: "Broker", message: OffsetCommitRequest, turn: Turn
) -> tuple[dict[Place, CommittedOffset], dict[Place, ErrorCode]]:
    """What is to be committed; and what cannot be, whoever asks."""
    now_ms = broker.now_ms()
    retention_ms = message.retention_time_ms
    expire_ms = -1 if retention_ms == RETENTION_OF_THE_BROKER else min(max(now_ms + retention_ms, 0), INT64_MAX)
    commits: dict[Place, CommittedOffset] = {}
    errors: dict[Place, ErrorCode] = {}
    for topic in message.topics:
        await turn.pause()
        for one in topic.partitions:
            await turn.pause()
            place = (topic.name, one.partition_index)
            if not broker.exists(*place):
                errors[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.name else ErrorCode.UNKNOWN_TOPIC_ID
                continue
            commits[place] = CommittedOffset(
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata or "",
                now_ms,
                expire_ms,
                broker.topics.by_name[topic.name].topic_id,
            )
    return commits, errors


API = declared(SPEC, handle)
