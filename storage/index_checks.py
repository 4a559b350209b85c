"""Whether what the indexes of a segment say can be right. Only looks: the segment builds them anew where it cannot.

What is checked is what an answer rests on: the entry that was found and the batch that it points at, or the ends of the
indexes and the end of the log. The rest of an index is checked when it is asked."""

import struct
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from pylog.storage.batch import HEADER_BYTES, MAGIC, NO_TIMESTAMP, PREFIX_BYTES
from pylog.storage.errors import CorruptBatch
from pylog.storage.index import INT32_MAX, Index
from pylog.storage.scan import in_order

if TYPE_CHECKING:
    from pylog.storage.segment import Segment

_FRONT = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_LOOKED_AT_MAX = 64  # batches, to find an entry of the time index out


# -- when a log is opened


def sizes_are_sound(segment: "Segment", sizes: dict[str, int]) -> bool:
    """The least to ask of a sealed segment, and no more than the directory listing tells."""
    indexes = (segment.offsets, segment.times)
    return all(index.path.name in sizes and not index.surplus_bytes for index in indexes)


def ends_are_sound(segment: "Segment", index_interval_bytes: int) -> bool:
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
        return newest is None or _has_maximum(segment, segment.base_offset + newest[1], newest[0])
    except CorruptBatch:
        return False


def _ascends(index: Index) -> bool:
    if index.surplus_bytes:
        return False
    first = max(0, index.count - 2)
    entries = index.stored_entries(first, index.count - first) if index.count else []
    return all(a < c and b < d for (a, b), (c, d) in pairwise(entries)) and all(min(entry) >= 0 for entry in entries)


# -- when an entry is used


def can_hold(segment: "Segment", relative_offset: int, position: int) -> bool:
    """Whether an entry of the offset index can be right: an append that ended at this offset began there."""
    if not 0 <= position <= segment.size_bytes - HEADER_BYTES:
        return False
    base_offset: int
    last_offset_delta: int
    base_offset, length, magic, last_offset_delta = _FRONT.unpack(segment.file.read_at(position, _FRONT.size))
    if magic != MAGIC or not HEADER_BYTES <= PREFIX_BYTES + length <= segment.size_bytes - position:
        return False
    last_offset = base_offset + last_offset_delta
    return segment.base_offset <= base_offset <= last_offset <= segment.base_offset + relative_offset


def is_first_maximum(segment: "Segment", entry: int) -> bool:
    """Whether an entry of the time index can be right: the batch with its offset has its maximum, and no batch since
    the entry before it has as much. Where that one is far away, only the nearest batches are looked at."""
    timestamp_ms, relative = segment.times[entry]
    before_ms, before = segment.times[entry - 1] if entry else (NO_TIMESTAMP - 1, -1)
    if not (before_ms < timestamp_ms and before < relative < segment.next_offset - segment.base_offset):
        return False
    offset = segment.base_offset + relative
    between = segment.headers(segment.position_of(segment.base_offset + max(before, 0)))
    for _, header in islice(between, _LOOKED_AT_MAX):
        if header.last_offset >= offset:
            break
        if header.latest_record_ms >= timestamp_ms:
            return False
    return _has_maximum(segment, offset, timestamp_ms)


def ends_with_maximum(segment: "Segment", last: tuple[int, int] | None) -> bool:
    """Whether the time index, of which this is the last entry, ends as the log does: with a maximum, taken for the
    segment's, that its batch has, and that none behind the last entry of the offset index exceeds."""
    if last is not None and not _has_maximum(segment, segment.base_offset + last[1], last[0]):
        return False
    start = segment.indexed_before(segment.size_bytes, column=1)
    return all(header.latest_record_ms <= segment.max_timestamp_ms for _, header in segment.headers(start))


def _has_maximum(segment: "Segment", offset: int, timestamp_ms: int) -> bool:
    """Whether the batch with this offset has this maximum."""
    if not segment.base_offset <= offset < segment.next_offset:
        return False
    for _, header in segment.headers(segment.position_of(offset)):
        return header.base_offset <= offset and header.max_timestamp == timestamp_ms
    return False
