"""Fetch, key 1. Finds positions; the kernel sends the bytes. Too little there: it waits, for a while.

Every answer says "no session" (session id 0), so clients name all their partitions in each request.
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pylog.broker_lite.api import Api, Request
from pylog.broker_lite.connection import Answer, Parts
from pylog.broker_lite.errors import EXPECTED, error_of
from pylog.broker_lite.partition import Partition, Waiter, check_epoch
from pylog.broker_lite.protocol import fetch
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import READ_COMMITTED, FetchPartition, FetchRequest, PartitionHead
from pylog.storage.batch import PREFIX_BYTES, read_prefix
from pylog.storage.errors import OffsetOutOfRange
from pylog.storage.log import FileSlice

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


class _Found(NamedTuple):
    heads: list[PartitionHead]
    slices: list[FileSlice | None]
    size_bytes: int
    has_error: bool


def answer(broker: "Broker", request: Request) -> Answer:
    message = fetch.decode_request(request.body, request.version)
    if message.session_id != fetch.NO_SESSION_ID:  # never given out
        return list(fetch.encode_response_pieces([], request.version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    bytes_max = min(message.max_bytes, broker.config["fetch.max.bytes"])
    # It must not wait for more than it may send.
    message = message._replace(max_bytes=bytes_max, min_bytes=min(message.min_bytes, bytes_max))
    found = _find(broker, message)
    if _enough(found, message) or message.max_wait_ms <= 0:
        return _parts(broker, found, request.version)
    return _wait(broker, message, found, request.version)


def _enough(found: _Found, message: FetchRequest) -> bool:
    return found.size_bytes >= message.min_bytes or found.has_error or not message.partitions


async def _wait(broker: "Broker", message: FetchRequest, found: _Found, version: int) -> Parts:
    """Until there is enough, an error, or no time left."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + message.max_wait_ms / 1000
    while not _enough(found, message) and (left := deadline - loop.time()) > 0:
        waiter = Waiter(message.min_bytes - found.size_bytes)
        waited = [
            broker.partitions[place]
            for one in message.partitions
            if (place := (one.topic, one.partition)) in broker.partitions
        ]
        for partition in waited:
            partition.waiters.add(waiter)
        timer = loop.call_later(left, waiter.wake)
        try:
            await waiter.woken
        finally:
            timer.cancel()
            for partition in waited:
                partition.waiters.discard(waiter)
        found = _find(broker, message)
    return _parts(broker, found, version)


def _find(broker: "Broker", message: FetchRequest) -> _Found:
    heads: list[PartitionHead] = []
    slices: list[FileSlice | None] = []
    room = message.max_bytes
    size_bytes, has_error = 0, False
    for asked in message.partitions:
        head, found = _read(broker, asked, room - size_bytes, message.isolation_level, first=size_bytes == 0)
        has_error = has_error or head.error_code != ErrorCode.NONE
        size_bytes += head.records_bytes
        heads.append(head)
        slices.append(found)
    return _Found(heads, slices, size_bytes, has_error)


def _read(
    broker: "Broker", asked: FetchPartition, room: int, isolation_level: int, *, first: bool
) -> tuple[PartitionHead, FileSlice | None]:
    """A first batch is sent however large it is, so that a reader always gets on. What is not committed is not sent,
    nor, to a reader of committed transactions, what is not decided."""
    high_watermark = last_stable_offset = log_start_offset = -1
    aborted = None
    try:
        partition = broker.partition(asked.topic, asked.partition)
        log = partition.log
        high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
        last_stable_offset = log.last_stable_offset
        check_epoch(asked.current_leader_epoch)
        found = None
        if room > 0 or first:
            end_offset = last_stable_offset if isolation_level == READ_COMMITTED else high_watermark
            found = log.read(asked.fetch_offset, min(asked.partition_max_bytes, room), end_offset)
        elif not log_start_offset <= asked.fetch_offset <= high_watermark:
            raise OffsetOutOfRange(asked.fetch_offset, log_start_offset, high_watermark)
        if found is not None and found.length > room and not first:
            found = None
        if isolation_level == READ_COMMITTED:
            aborted = [] if found is None else _aborted(partition, asked.fetch_offset, found, last_stable_offset)
        code = ErrorCode.NONE
    except EXPECTED as error:
        code, found = error_of(error)[0], None
        if broker.requests is not None:
            broker.requests.note_error(fetch.SPEC.key, code)
    records_bytes = 0 if found is None else found.length
    head = PartitionHead(
        asked.topic,
        asked.partition,
        code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        records_bytes,
        aborted,
    )
    return head, found


def _aborted(partition: Partition, offset: int, found: FileSlice, end_offset: int) -> list[tuple[int, int]]:
    """The transactions, of those with records in the slice, whose records its reader drops: producer, first offset."""
    if not partition.has_aborted:
        return []
    behind = found.file.read_at(found.position + found.length, PREFIX_BYTES)
    if len(behind) == PREFIX_BYTES:
        end_offset = min(end_offset, read_prefix(behind)[0])
    return [(one.producer_id, one.first_offset) for one in partition.log.aborted_transactions(offset, end_offset)]


def _parts(broker: "Broker", found: _Found, version: int) -> Parts:
    pieces = fetch.encode_response_pieces(found.heads, version)
    parts: Parts = [pieces[0]]
    for piece, records, head in zip(pieces[1:], found.slices, found.heads, strict=True):
        if records is not None:
            parts.append(records)
            broker.partitions[head.topic, head.partition].bytes_out += records.length
        parts.append(piece)
    return parts


API = Api(fetch.SPEC, answer)
