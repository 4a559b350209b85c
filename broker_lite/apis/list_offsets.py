"""ListOffsets, key 2. -1 latest, -2 earliest, -3 the record with the latest timestamp, otherwise the first record at
or after a timestamp.

What is not committed is not there yet; for a client that reads committed transactions only, what is not decided."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.partition import LEADER_EPOCH, check_epoch
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import READ_COMMITTED
from pylog.broker_lite.protocol.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    SPEC,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pylog.storage.log import PartitionLog

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: ListOffsetsRequest, request: Request) -> ListOffsetsResponse:
    committed = message.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name, [_offset(broker, topic.name, asked, committed=committed) for asked in topic.partitions]
            )
            for topic in message.topics
        ]
    )


def _offset(
    broker: "Broker", topic: str, asked: ListOffsetsPartition, *, committed: bool
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        check_epoch(asked.current_leader_epoch)
        found = _find(broker.partition(topic, index).log, asked.timestamp, committed=committed)
    except EXPECTED as error:
        return ListOffsetsPartitionResponse(index, error_of(error)[0])
    if found is None:
        return ListOffsetsPartitionResponse(index)
    timestamp, offset = found
    return ListOffsetsPartitionResponse(index, ErrorCode.NONE, timestamp, offset, LEADER_EPOCH)


def _find(log: PartitionLog, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
    end_offset = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST_TIMESTAMP:
        return NO_TIMESTAMP, end_offset
    if timestamp == EARLIEST_TIMESTAMP:
        return NO_TIMESTAMP, log.log_start_offset
    if timestamp < MAX_TIMESTAMP:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"The special timestamp {timestamp} is not known here.")
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_at_time(timestamp)
    return found if found is not None and found[1] < end_offset else None


API = declared(SPEC, handle)
