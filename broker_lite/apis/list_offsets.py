"""ListOffsets, key 2. -1 latest, -2 earliest, -3 the record with the latest timestamp, -4 the earliest that is not
tiered, -5 the last that is, -6 the first that waits to be; otherwise the first record at or after a timestamp.

What is not committed is not there yet; for a client that reads committed transactions only, what is not decided.

A look-up by time may have to wait for the disk, and to unfold a large batch: threads do that, step by step.
"""

import asyncio
from typing import TYPE_CHECKING

from pylog.broker_lite import cold
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import READ_COMMITTED
from pylog.broker_lite.protocol.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
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
from pylog.broker_lite.turns import Turn
from pylog.storage.log import PartitionLog
from pylog.storage.ports import NOT_WAITING, WouldWait
from pylog.storage.time_search import look_into

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_SINCE = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_TIERED = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)


async def handle(broker: "Broker", message: ListOffsetsRequest, request: Request) -> ListOffsetsResponse:
    """What is asked for twice is refused, both times, as Kafka does."""
    turn = Turn()
    times: dict[tuple[str, int], int] = {}
    for topic in message.topics:
        for one in topic.partitions:
            place = (topic.name, one.partition_index)
            times[place] = times.get(place, 0) + 1
            await turn.pause()
    committed = message.isolation_level == READ_COMMITTED
    topics = []
    for topic in message.topics:
        found = []
        for one in topic.partitions:
            if times[topic.name, one.partition_index] > 1:
                found.append(ListOffsetsPartitionResponse(one.partition_index, ErrorCode.INVALID_REQUEST))
            else:
                found.append(await _offset(broker, topic.name, one, request.version, committed=committed))
            await turn.pause()
        topics.append(ListOffsetsTopicResponse(topic.name, found))
        await turn.pause()
    return ListOffsetsResponse(topics=topics)


async def _offset(
    broker: "Broker", topic: str, asked: ListOffsetsPartition, version: int, *, committed: bool
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        if asked.timestamp < 0 and version < _SINCE.get(asked.timestamp, 1 << 15):
            raise RequestError(
                ErrorCode.UNSUPPORTED_VERSION, f"The special timestamp {asked.timestamp} is not known to v{version}."
            )
        partition = broker.partition(topic, index)
        partition.check_epoch(asked.current_leader_epoch)
        log = partition.log
        found = await _find(log, asked.timestamp, committed=committed)
    except EXPECTED as error:
        return ListOffsetsPartitionResponse(index, error_of(error)[0])
    if found is None:
        return ListOffsetsPartitionResponse(index)
    timestamp, offset = found
    epoch = None if asked.timestamp == LATEST_TIMESTAMP else log.epochs.epoch_for(offset)
    epoch = partition.leader_epoch if epoch is None else epoch
    return ListOffsetsPartitionResponse(index, ErrorCode.NONE, timestamp, offset, epoch)


async def _find(log: PartitionLog, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
    end_offset = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST_TIMESTAMP:
        return NO_TIMESTAMP, end_offset
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return NO_TIMESTAMP, log.log_start_offset
    if timestamp in _TIERED:  # nothing is
        return None
    found = await _search(log, timestamp)
    return found if found is not None and found[1] < end_offset else None


async def _search(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    while True:
        search = log.search_latest() if timestamp == MAX_TIMESTAMP else log.search_time(timestamp)
        shape = log.shape
        found: tuple[int, int] | None = None
        try:
            while log.shape == shape:  # else its segments have changed, and it is begun anew
                with NOT_WAITING:
                    batch = log.step(search, found)
                if batch is None:
                    await asyncio.sleep(0)
                    found = None
                else:
                    found = await cold.waited(look_into, batch)
        except StopIteration as done:
            last: tuple[int, int] | None = done.value
            return last
        except WouldWait as disk:
            await cold.waited(disk.wait)


API = declared(SPEC, handle)
