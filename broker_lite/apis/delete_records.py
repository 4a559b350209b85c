"""DeleteRecords, key 21. Records below an offset are gone, and stay gone: answered when that is on the disk."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.machines.topics import INTERNAL_TOPICS
from pylog.broker_lite.protocol.delete_records import (
    NO_LOW_WATERMARK,
    SPEC,
    TO_HIGH_WATERMARK,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Turn
from pylog.storage.errors import OffsetOutOfRange
from pylog.storage.log import PartitionLog

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

Place = tuple[str, int]


async def handle(broker: "Broker", message: DeleteRecordsRequest, request: Request) -> DeleteRecordsResponse:
    moved: dict[Place, PartitionLog] = {}
    errors: dict[Place, ErrorCode] = {}
    turn = Turn()
    for topic in message.topics:
        for one in topic.partitions:
            place = (topic.name, one.partition_index)
            try:
                moved[place] = _move_start(broker, *place, one.offset)
            except EXPECTED as error:
                errors[place] = error_of(error)[0]
            await turn.pause()
        await turn.pause()
    if moved:
        errors |= dict.fromkeys(await broker.delete_records(moved), ErrorCode.KAFKA_STORAGE_ERROR)

    def result(place: Place) -> DeleteRecordsPartitionResult:
        if place in errors:
            return DeleteRecordsPartitionResult(place[1], NO_LOW_WATERMARK, errors[place])
        return DeleteRecordsPartitionResult(place[1], moved[place].log_start_offset)

    response = DeleteRecordsResponse()
    for topic in message.topics:
        told = DeleteRecordsTopicResult(topic.name)
        response.topics.append(told)
        for one in topic.partitions:
            told.partitions.append(result((topic.name, one.partition_index)))
            await turn.pause()
        await turn.pause()
    return response


def _move_start(broker: "Broker", topic: str, index: int, offset: int) -> PartitionLog:
    log = broker.partition(topic, index).log
    if topic in INTERNAL_TOPICS:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: its records are the broker's own.")
    if log.config.compact and not log.config.delete:
        raise RequestError(ErrorCode.POLICY_VIOLATION, "cleanup.policy=compact: records go when their keys come again.")
    if offset == TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.high_watermark)
    log.move_start(offset)
    return log


API = declared(SPEC, handle)
