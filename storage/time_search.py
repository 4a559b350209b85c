"""Look-ups by time, in steps, for who must not be kept long.

A search is a generator. It yields a batch whose records have to be looked at, which any thread may do (`records_of`),
and is sent them; or None, where it has looked at a good deal and others may have their turn. What it ends with is
(timestamp, offset), or None. It holds on to segments: if the log's `shape` changes between two steps, it is begun anew.
`run` takes all steps at once.
"""

from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from pylog.storage.batch import NO_TIMESTAMP, BatchHeader
from pylog.storage.errors import CorruptBatch, StorageError
from pylog.storage.ports import LogFile
from pylog.storage.records import Record, decode_batch
from pylog.storage.segment import Segment

_HEADERS_MAX = 1000  # between two steps

T = TypeVar("T")
Found = tuple[int, int]  # timestamp, offset


class Batch(NamedTuple):
    path: Path
    file: LogFile
    position: int
    size_bytes: int


Search = Generator[Batch | None, Sequence[Record], T]


def records_of(batch: Batch) -> list[Record]:
    """Any thread."""
    try:
        return decode_batch(batch.file.read_at(batch.position, batch.size_bytes))
    except StorageError as error:
        raise CorruptBatch(f"{batch.path}: the batch at byte {batch.position} cannot be read: {error}") from error


def run(search: Search[T]) -> T:
    sent: Sequence[Record] | None = None
    while True:
        try:
            step = next(search) if sent is None else search.send(sent)
        except StopIteration as done:
            found: T = done.value
            return found
        sent = () if step is None else records_of(step)


def first_at_time(segments: Iterable[Segment], timestamp_ms: int, offset_min: int) -> Search[Found | None]:
    """The first record from `offset_min` on with this timestamp or a later one."""
    for segment in segments:
        if timestamp_ms > segment.latest_timestamp_ms:
            continue
        from_offset = max(segment.offset_before_time(timestamp_ms), offset_min)
        for count, (position, header) in enumerate(segment.headers(segment.position_of(from_offset)), 1):
            if header.max_timestamp >= timestamp_ms:
                for record in (yield _batch(segment, position, header)):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= offset_min:
                        return record.timestamp_ms, record.offset
            elif count % _HEADERS_MAX == 0:
                yield None
    return None


def latest(segments: Sequence[Segment], start_offset: int) -> Search[Found | None]:
    """The record with the latest timestamp, the first of them if there are several. `segments` are those from the one
    that holds the log's start on."""
    first, *others = segments
    latest_ms = max((segment.latest_timestamp_ms for segment in others), default=NO_TIMESTAMP)
    if first.latest_timestamp_ms > latest_ms:  # of the first one a part may be deleted
        if start_offset > first.base_offset:
            latest_ms = max(latest_ms, (yield from _latest_since([first], start_offset)))
        else:
            latest_ms = first.latest_timestamp_ms
    if latest_ms == NO_TIMESTAMP:
        return None
    found = yield from first_at_time(segments, latest_ms, start_offset)
    if found is None:  # an index of Kafka's names a batch that compaction has emptied: rare, and takes long
        latest_ms = yield from _latest_since(segments, start_offset)
        if latest_ms != NO_TIMESTAMP:
            found = yield from first_at_time(segments, latest_ms, start_offset)
    return found


def _latest_since(segments: Iterable[Segment], offset: int) -> Search[int]:
    """The maximum timestamp of the records from this offset on. Looks at every batch behind it."""
    latest_ms = NO_TIMESTAMP
    for segment in segments:
        for count, (position, header) in enumerate(segment.headers(segment.position_of(offset)), 1):
            if header.base_offset >= offset:
                latest_ms = max(latest_ms, header.latest_record_ms)
            elif header.max_timestamp > latest_ms:  # of this batch a part is deleted
                records = yield _batch(segment, position, header)
                latest_ms = max([latest_ms, *(one.timestamp_ms for one in records if one.offset >= offset)])
            if count % _HEADERS_MAX == 0:
                yield None
    return latest_ms


def _batch(segment: Segment, position: int, header: BatchHeader) -> Batch:
    return Batch(segment.path, segment.file, position, header.size_bytes)
