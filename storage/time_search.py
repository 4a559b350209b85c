"""Look-ups by time, in steps, for who must not be kept long.

A search is a generator. It yields a batch whose records have to be looked at, which any thread may do (`look_into`),
and is sent what was found there; or None, where it has looked at a good deal and others may have their turn. It ends
with (timestamp, offset), or None. It holds on to segments: if the log's `shape` changes between two steps, it is begun
anew. `run` takes all steps at once.

Of a batch that unfolds to very much more than it is, nobody looks at the records: its first offset is as near as it
gets, and no reader who begins there misses any.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from pylog.storage.batch import NO_TIMESTAMP, BatchHeader
from pylog.storage.errors import BatchTooLarge, CorruptBatch, StorageError
from pylog.storage.ports import LogFile
from pylog.storage.records import iterate_batch
from pylog.storage.segment import Segment

_HEADERS_MAX = 1000  # between two steps
_PLAIN_BYTES = 64 << 20  # a batch may unfold to so much,
_PLAIN_FACTOR = 16  # or to so many times its size

T = TypeVar("T")
Found = tuple[int, int]  # timestamp, offset


class Batch(NamedTuple):
    path: Path
    file: LogFile
    position: int
    header: BatchHeader
    choose: Callable[[Iterator[Found]], Found | None]  # of its records
    offset_min: int


Search = Generator[Batch | None, Found | None, T]


def look_into(batch: Batch) -> Found | None:
    """Any thread."""
    header = batch.header
    plain_bytes_max = max(_PLAIN_BYTES, _PLAIN_FACTOR * header.size_bytes)
    try:
        data = batch.file.read_at(batch.position, header.size_bytes)
        records = iterate_batch(data, plain_bytes_max=plain_bytes_max)
        return batch.choose((one.timestamp_ms, one.offset) for one in records if one.offset >= batch.offset_min)
    except BatchTooLarge:
        return header.max_timestamp, max(header.base_offset, batch.offset_min)
    except StorageError as error:
        raise CorruptBatch(f"{batch.path}: the batch at byte {batch.position} cannot be read: {error}") from error


def run(search: Search[T]) -> T:
    sent: Found | None = None
    while True:
        try:
            step = search.send(sent)
        except StopIteration as done:
            found: T = done.value
            return found
        sent = None if step is None else look_into(step)


def first_at_time(segments: Iterable[Segment], timestamp_ms: int, offset_min: int) -> Search[Found | None]:
    """The first record from `offset_min` on with this timestamp or a later one."""

    def choose(records: Iterator[Found]) -> Found | None:
        return next((one for one in records if one[0] >= timestamp_ms), None)

    for segment in segments:
        if timestamp_ms > segment.latest_timestamp_ms:
            continue
        from_offset = max(segment.offset_before_time(timestamp_ms), offset_min)
        for count, (position, header) in enumerate(segment.headers(segment.position_of(from_offset)), 1):
            if header.max_timestamp >= timestamp_ms:
                found = yield Batch(segment.path, segment.file, position, header, choose, offset_min)
                if found is not None:
                    return found
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
                found = yield Batch(segment.path, segment.file, position, header, _latest_of, offset)
                if found is not None:
                    latest_ms = max(latest_ms, found[0])
            if count % _HEADERS_MAX == 0:
                yield None
    return latest_ms


def _latest_of(records: Iterator[Found]) -> Found | None:
    return max(records, default=None)
