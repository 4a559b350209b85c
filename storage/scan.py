"""Reading the batches of a file one after the other, and telling whether they can be what was written."""

from collections.abc import Iterator
from itertools import pairwise

from crc32c import crc32c

from pylog.storage.batch import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    check,
    read_header,
    read_prefix,
)
from pylog.storage.errors import CorruptBatch, StorageError
from pylog.storage.index import INT32_MAX, Index
from pylog.storage.ports import LogFile
from pylog.storage.segment import Segment

CHUNK_BYTES = 1 << 20


def sizes_are_sound(segment: Segment, sizes: dict[str, int]) -> bool:
    """The least to ask of a sealed segment, and no more than the directory listing tells."""
    indexes = (segment.offsets, segment.times)
    return all(index.path.name in sizes and not index.surplus_bytes for index in indexes)


def ends_are_sound(segment: Segment, index_interval_bytes: int) -> bool:
    """Whether both indexes end as the log does; sets the segment's next offset and maximum timestamp if so.

    Reads from the last index entry on, which is one interval and one batch in a whole index."""
    if not (_ascends(segment.offsets) and _ascends(segment.times)):
        return False
    entry = segment.offsets.last
    start = 0 if entry is None else entry[1]
    next_offset, max_timestamp_ms, seen_entry = segment.base_offset, NO_TIMESTAMP, entry is None
    try:
        for position, header in in_order(segment.headers(start), next_offset, segment.base_offset + INT32_MAX):
            if position - start > index_interval_bytes:
                return False  # this batch should have had an entry
            next_offset = header.next_offset
            max_timestamp_ms = max(max_timestamp_ms, header.latest_record_ms)
            seen_entry = seen_entry or (entry is not None and header.last_offset == segment.base_offset + entry[0])
    except CorruptBatch:
        return False
    newest = segment.times.last
    if not seen_entry or max_timestamp_ms > (NO_TIMESTAMP if newest is None else newest[0]):
        return False
    segment.adopt(next_offset)
    try:
        return newest is None or segment.has_maximum(segment.base_offset + newest[1], newest[0])
    except CorruptBatch:
        return False


def _ascends(index: Index) -> bool:
    if index.surplus_bytes:
        return False
    first = max(0, index.count - 2)
    entries = index.stored_entries(first, index.count - first) if index.count else []
    return all(a < c and b < d for (a, b), (c, d) in pairwise(entries)) and all(min(entry) >= 0 for entry in entries)


def in_order(
    batches: Iterator[tuple[int, BatchHeader]],
    next_offset: int,
    offset_max: int,
    *,
    following: int | None = None,
    gap_at_end: bool = True,
) -> Iterator[tuple[int, BatchHeader]]:
    """The same batches, up to the first whose offsets do not follow. Gaps are allowed, for compaction leaves them; but
    no CRC covers the first offset of a batch, so where one skips some, what comes behind it has to follow: the next
    batch, or `following`, the segment behind these. Without `gap_at_end`, one with nothing behind it may skip none."""
    waiting: tuple[int, BatchHeader] | None = None  # skips offsets, those from `skipped` on
    skipped = next_offset
    damage: StorageError | None = None
    try:
        for position, header in batches:
            if header.magic != MAGIC or header.last_offset_delta < 0:
                raise CorruptBatch(f"record batch format v{header.magic}, last offset delta {header.last_offset_delta}")
            if not next_offset <= header.base_offset <= header.last_offset <= offset_max:
                if waiting is not None and skipped <= header.base_offset <= header.last_offset <= offset_max:
                    following = header.base_offset
                raise CorruptBatch(
                    f"offsets {header.base_offset} to {header.last_offset}, where {next_offset} to {offset_max} can be"
                )
            if waiting is not None:
                yield waiting
                waiting = None
            if header.base_offset > next_offset:
                waiting, skipped = (position, header), next_offset
            else:
                yield position, header
            next_offset = header.next_offset
    except StorageError as error:
        damage = error
    if waiting is not None:
        if following is None and not gap_at_end:
            raise _skips(waiting[1], skipped, "and nothing comes behind them") from damage
        if following is not None and following < next_offset:
            raise _skips(waiting[1], skipped, f"and {following} comes behind them") from damage
        yield waiting
    if damage is not None:
        raise damage


def _skips(header: BatchHeader, next_offset: int, behind: str) -> CorruptBatch:
    return CorruptBatch(f"offsets {header.base_offset} to {header.last_offset}, where {next_offset} is next, {behind}")


def checked_batches(file: LogFile, end: int, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch, in one buffer of fixed size; raises at the first that is not intact."""
    buffer = memoryview(bytearray(min(CHUNK_BYTES, max(end - position, 1))))
    start, filled = position, 0  # buffer[:filled] is the file from `start` on
    while position < end:
        at = position - start
        if filled - at < HEADER_BYTES or at + read_prefix(buffer, at)[1] > filled:
            start, at, filled = position, 0, file.read_into(position, buffer[: end - position])
        if filled - at >= HEADER_BYTES and len(buffer) < read_prefix(buffer, at)[1] <= end - position:
            header = _check_large(file, position, buffer)
        else:
            header = check(buffer[:filled], at)
        yield position, header
        position += header.size_bytes


def _check_large(file: LogFile, position: int, buffer: memoryview) -> BatchHeader:
    """`check` for a batch larger than the buffer, which holds its beginning."""
    header = read_header(buffer)
    end = position + header.size_bytes
    crc = crc32c(buffer[CRC_START:])
    position += len(buffer)
    while position < end:
        filled = file.read_into(position, buffer[: end - position])
        if not filled:
            raise CorruptBatch("the file ends in the batch")
        crc = crc32c(buffer[:filled], crc)
        position += filled
    if crc != header.crc:
        raise CorruptBatch(f"CRC-32C is {crc:08x}, the batch says {header.crc:08x}")
    return header
