"""ListOffsets, key 2. -2 earliest, -1 latest, otherwise the first record at or after a timestamp."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.partition import LEADER_EPOCH, Partition, check_epoch
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_TIMESTAMP,
    SPEC,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: ListOffsetsRequest, request: Request) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(topic.name, [_offset(broker, topic.name, asked) for asked in topic.partitions])
            for topic in message.topics
        ]
    )


def _offset(broker: "Broker", topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        check_epoch(asked.current_leader_epoch)
        found = _find(broker.partition(topic, index), asked.timestamp)
    except EXPECTED as error:
        return ListOffsetsPartitionResponse(index, error_of(error)[0])
    if found is None:
        return ListOffsetsPartitionResponse(index)
    timestamp, offset = found
    return ListOffsetsPartitionResponse(index, ErrorCode.NONE, timestamp, offset, LEADER_EPOCH)


def _find(partition: Partition, timestamp: int) -> tuple[int, int] | None:
    log = partition.log
    if timestamp == LATEST_TIMESTAMP:
        return NO_TIMESTAMP, log.high_watermark
    if timestamp == EARLIEST_TIMESTAMP:
        return NO_TIMESTAMP, log.log_start_offset
    if timestamp < 0:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"The special timestamp {timestamp} is not known here.")
    return log.offset_at_time(timestamp)


API = declared(SPEC, handle)
