"""Fetch, key 1. Finds positions; the kernel sends the bytes. Too little there: it waits, for a while.

A request is answered for the partitions that it names or, in a session, for all that the session has: then only with
what is news.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from pylog.broker_lite import cold
from pylog.broker_lite.api import Api, Request
from pylog.broker_lite.connection import Answer, Parts
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.fetch_sessions import Session
from pylog.broker_lite.partition import Partition, Waiter
from pylog.broker_lite.protocol import fetch
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import READ_COMMITTED, FetchPartition, FetchRequest, PartitionHead
from pylog.broker_lite.protocol.wire import Buffer
from pylog.broker_lite.turns import COLLECTOR, LARGE_BYTES, aside
from pylog.storage.batch import PREFIX_BYTES, read_prefix
from pylog.storage.epochs import UNDEFINED_OFFSET
from pylog.storage.errors import OffsetOutOfRange
from pylog.storage.log import FileSlice, PartitionLog
from pylog.storage.ports import NOT_WAITING, WouldWait

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_COLD_LOOKS_MAX = 10  # most need three: a page of the index, of the first batch, of the last one
_PARTITIONS_A_TURN = 200  # a millisecond or two


# What is said of a partition, its records, itself, and where it is by the topic's name.
_Read = tuple[PartitionHead, FileSlice | None, Partition | None, tuple[str, int]]
_head = PartitionHead._make  # in half the time


class _Found(NamedTuple):
    reads: list[_Read]
    size_bytes: int
    is_urgent: bool  # something that the reader must hear of at once
    cold: list[WouldWait]  # what the disk must be waited for, before all is found


def answer(broker: "Broker", request: Request) -> Answer:
    if len(request.body) > LARGE_BYTES:
        return _large(broker, bytes(request.body), request.version)
    message = fetch.decode_request(request.body, request.version)
    if len(message.partitions) > 1:
        message = _each_once(message)
    return _answer(broker, message, request.version)


async def _large(broker: "Broker", body: bytes, version: int) -> Parts:
    with COLLECTOR.mostly_among_new():
        answered = _answer(broker, await aside(_decode, body, version), version)
        return answered if isinstance(answered, list) else await answered


def _decode(body: Buffer, version: int) -> FetchRequest:
    return _each_once(fetch.decode_request(body, version))


def _each_once(message: FetchRequest) -> FetchRequest:
    """What is asked last of a partition counts, in the place of the first, as with Kafka."""
    unique = {(asked[0], asked[1]): asked for asked in message.partitions}
    if len(unique) == len(message.partitions):
        return message
    return message._replace(partitions=list(unique.values()))


def _answer(broker: "Broker", message: FetchRequest, version: int) -> Parts | Awaitable[Parts]:
    session = None
    if message.session_id != fetch.NO_SESSION_ID or message.session_epoch != fetch.SESSIONLESS_EPOCH:
        try:
            session = broker.fetch_sessions.session_of(message, by_id=version >= fetch.IDS_SINCE)
        except RequestError as error:
            return list(fetch.encode_response_pieces([], version, error.code))
    bytes_max = min(message.max_bytes, broker.fetch_bytes_max)
    if bytes_max < message.max_bytes or bytes_max < message.min_bytes:  # it must not wait for more than it may send
        message = message._replace(max_bytes=bytes_max, min_bytes=min(message.min_bytes, bytes_max))
    asked = message.partitions if session is None else session.to_look_at(broker.partitions)
    if len(asked) > _PARTITIONS_A_TURN:
        return _find_and_wait(broker, message, session, version)
    found = _find(broker, message, asked)
    if not found.cold and (message.max_wait_ms <= 0 or _enough(found, message, session)):
        return _parts(found.reads, session, version)
    return _wait(broker, message, session, found, version)


def _enough(found: _Found, message: FetchRequest, session: Session | None) -> bool:
    if found.size_bytes >= message.min_bytes or found.is_urgent:
        return True
    if found.size_bytes and any(records is not None and records.goes_on for _, records, _, _ in found.reads):
        return True  # a segment ends there, or the next batch is more than the reader takes: waiting brings nothing
    return not (message.partitions or session)


async def _find_and_wait(broker: "Broker", message: FetchRequest, session: Session | None, version: int) -> Parts:
    return await _wait(broker, message, session, await _find_all(broker, message, session), version)


async def _wait(broker: "Broker", message: FetchRequest, session: Session | None, found: _Found, version: int) -> Parts:
    """Until there is enough, an error, or no time left."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + message.max_wait_ms / 1000
    found = await _read_from_disk(broker, message, session, found)
    while not (_enough(found, message, session) or broker.is_closing) and (left := deadline - loop.time()) > 0:
        waiter = Waiter(message.min_bytes - found.size_bytes)
        waited = _partitions_of(broker, message.partitions if session is None else session.places())
        for partition in waited:
            partition.waiters.add(waiter)
        timer = loop.call_later(left, waiter.wake)
        try:
            await waiter.woken
        finally:
            timer.cancel()
            for partition in waited:
                partition.waiters.discard(waiter)
        found = await _read_from_disk(broker, message, session, await _find_all(broker, message, session))
    if len(found.reads) <= _PARTITIONS_A_TURN:
        return _parts(found.reads, session, version)
    return await _many_parts(found.reads, session, version)


async def _read_from_disk(broker: "Broker", message: FetchRequest, session: Session | None, found: _Found) -> _Found:
    """What was found when threads have waited for the disk: a look-up goes from page to page. Where that does not end,
    because memory is so short or a disk fails, the loop has to wait itself."""
    for number in range(_COLD_LOOKS_MAX):
        if not found.cold:
            break
        waited = await asyncio.gather(*(cold.waited(one.wait) for one in found.cold), return_exceptions=True)
        may_wait = number == _COLD_LOOKS_MAX - 1 or any(isinstance(one, BaseException) for one in waited)
        found = await _find_all(broker, message, session, may_wait=may_wait)
    return found


def _partitions_of(broker: "Broker", asked: Iterable[FetchPartition]) -> list[Partition]:
    names = ((broker.topics.name_of(one.topic), one.partition) for one in asked)
    found = [broker.partitions.get((name, index)) for name, index in names if name is not None]
    return [partition for partition in found if partition is not None]


async def _find_all(
    broker: "Broker", message: FetchRequest, session: Session | None, *, may_wait: bool = False
) -> _Found:
    """Some at a time: between them others have their turn."""
    asked = message.partitions if session is None else session.to_look_at(broker.partitions)
    found = _find(broker, message, asked[:_PARTITIONS_A_TURN], may_wait=may_wait)
    for start in range(_PARTITIONS_A_TURN, len(asked), _PARTITIONS_A_TURN):
        await asyncio.sleep(0)
        found = _find(broker, message, asked[start : start + _PARTITIONS_A_TURN], found, may_wait=may_wait)
    return found


def _find(
    broker: "Broker",
    message: FetchRequest,
    partitions: Sequence[FetchPartition],
    before: _Found | None = None,
    *,
    may_wait: bool = False,
) -> _Found:
    """To be added to what was found `before`."""
    reads, size_bytes, is_urgent, cold_reads = before or ([], 0, False, [])
    room = message.max_bytes
    with nullcontext() if may_wait else NOT_WAITING:
        for asked in partitions:
            try:
                read = _read(broker, asked, room - size_bytes, message, first=size_bytes == 0)
            except WouldWait as wait:
                cold_reads.append(wait)
                continue
            head, records, _, _ = read
            if head.error_code or head.diverging_epoch is not None:
                is_urgent = True
            elif records is not None:
                size_bytes += records.length
            reads.append(read)
    return _Found(reads, size_bytes, is_urgent, cold_reads)


def _read(broker: "Broker", asked: FetchPartition, room: int, message: FetchRequest, *, first: bool) -> _Read:
    """A first batch is sent however large it is, so that a reader always gets on. What is not committed is not sent,
    nor, to a reader of committed transactions, what is not decided."""
    topic, index, offset, bytes_max, epoch, _, last_epoch = asked
    aborted = found = partition = diverging = leader = None
    place = ("", -1)
    try:
        place = (topic if isinstance(topic, str) else broker.name_of(topic), index)
        partition = broker.partition(*place)
        log = partition.log
        high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
        last_stable_offset = log.last_stable_offset
        if epoch >= 0:
            partition.check_epoch(epoch)
        if message.replica_id >= 0:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "No other broker has a replica of this partition.")
        if last_epoch >= 0:
            diverging = _divergence(log, last_epoch, offset)
        if diverging is None:
            if room > 0 or first:
                end_offset = last_stable_offset if message.isolation_level == READ_COMMITTED else high_watermark
                found = log.read(offset, min(bytes_max, room), end_offset)
            elif not log_start_offset <= offset <= high_watermark:
                raise OffsetOutOfRange(offset, log_start_offset, high_watermark)
            if found is not None and found.length > room and not first:
                found = None
        if message.isolation_level == READ_COMMITTED:
            aborted = [] if found is None else _aborted(partition, offset, found, last_stable_offset)
        code = ErrorCode.NONE
    except EXPECTED as error:
        code, found = error_of(error)[0], None
        high_watermark = last_stable_offset = log_start_offset = -1
        if code == ErrorCode.FENCED_LEADER_EPOCH and partition is not None:
            leader = (broker.node_id, partition.leader_epoch)
        if broker.requests is not None:
            broker.requests.note_error(fetch.SPEC.key, code)
    records_bytes = 0 if found is None else found.length
    watermarks = (high_watermark, last_stable_offset, log_start_offset)
    head = _head((topic, index, code, *watermarks, records_bytes, aborted, diverging, leader))
    return head, found, partition, place


def _divergence(log: PartitionLog, last_epoch: int, offset: int) -> tuple[int, int] | None:
    """Where the reader, whose last record is of this epoch, has something else than this log."""
    epoch, end_offset = log.epochs.end_offset_for(last_epoch, log.log_end_offset)
    if end_offset == UNDEFINED_OFFSET:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
    return (epoch, end_offset) if epoch < last_epoch or end_offset < offset else None


def _aborted(partition: Partition, offset: int, found: FileSlice, end_offset: int) -> list[tuple[int, int]]:
    """The transactions, of those with records in the slice, whose records its reader drops: producer, first offset."""
    if not partition.has_aborted:
        return []
    behind = found.file.read_at(found.position + found.length, PREFIX_BYTES)
    if len(behind) == PREFIX_BYTES:
        end_offset = min(end_offset, read_prefix(behind)[0])
    return [(one.producer_id, one.first_offset) for one in partition.log.aborted_transactions(offset, end_offset)]


def _parts(reads: Sequence[_Read], session: Session | None, version: int) -> Parts:
    session_id = fetch.NO_SESSION_ID
    if session is not None:
        session_id = session.id
        reads = [read for read in reads if session.tell(read[0], read[2], read[3])]
    _count(reads)
    return _encoded(reads, version, session_id)


async def _many_parts(reads: Sequence[_Read], session: Session | None, version: int) -> Parts:
    news: list[_Read] = []
    for start in range(0, len(reads), _PARTITIONS_A_TURN):
        some = reads[start : start + _PARTITIONS_A_TURN]
        told = some if session is None else [read for read in some if session.tell(read[0], read[2], read[3])]
        _count(told)
        news += told
        await asyncio.sleep(0)
    with COLLECTOR.mostly_among_new():
        return await aside(_encoded, news, version, fetch.NO_SESSION_ID if session is None else session.id)


def _count(reads: Iterable[_Read]) -> None:
    for _, records, partition, _ in reads:
        if records is not None and partition is not None:
            partition.bytes_out += records.length


def _encoded(reads: Sequence[_Read], version: int, session_id: int) -> Parts:
    """What stands between two partitions' records is one part."""
    pieces = fetch.encode_response_pieces([read[0] for read in reads], version, session_id=session_id)
    last = pieces[0]
    parts: Parts = [last]
    for piece, (_, records, _, _) in zip(pieces[1:], reads, strict=True):
        if records is None:
            last += piece
        else:
            parts += (records, piece)
            last = piece
    return parts


API = Api(fetch.SPEC, answer)
