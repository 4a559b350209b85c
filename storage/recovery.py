"""How far the files of a partition can be trusted when it is opened.

After a clean stop sizes and the ends of the indexes are looked at; after an unclean one the last segment is
read from its start, CRCs included, and cut behind its last good batch. What a sealed segment holds was complete
when its successor came into being, so there only the ends are looked at, unless they do not fit together.
"""

import logging
from collections.abc import Iterator
from itertools import pairwise

from crc32c import crc32c

from pylog.storage import files
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
from pylog.storage.segment import Segment

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20


def recover(segment: Segment, next_offset_min: int, *, sealed: bool) -> None:
    """Read the whole segment, cut it behind its last good batch, and build its indexes anew.

    Of a sealed segment only the headers are read: a damaged record in it is no reason to cut the good batches
    behind it, and whoever reads it finds it by its CRC."""
    size_bytes = segment.size_bytes
    _log.info("%s: reading %d bytes to build its indexes anew", segment.path, size_bytes)
    next_offset = max(next_offset_min, segment.base_offset)
    batches = segment.headers(0) if sealed else checked_batches(segment.file, size_bytes)
    try:
        segment.rebuild(_in_order(batches, next_offset, segment.base_offset + INT32_MAX))
    except StorageError as error:
        _log.warning(
            "%s: cut at byte %d, behind offset %d: the %d bytes that follow do not begin with an intact batch (%s)",
            segment.path,
            segment.size_bytes,
            segment.next_offset - 1,
            size_bytes - segment.size_bytes,
            error,
        )
        files.truncate(segment.path, segment.size_bytes)
    if sealed:
        segment.store_indexes()


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
        for position, header in _in_order(segment.headers(start), next_offset, segment.base_offset + INT32_MAX):
            if position - start > index_interval_bytes:
                return False  # this batch should have had an entry
            next_offset = header.next_offset
            max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp)
            seen_entry = seen_entry or (entry is not None and header.last_offset == segment.base_offset + entry[0])
    except CorruptBatch:
        return False
    newest = segment.times.last
    if not seen_entry or max_timestamp_ms > (NO_TIMESTAMP if newest is None else newest[0]):
        return False
    if newest is not None and segment.base_offset + newest[1] >= next_offset:
        return False
    segment.adopt(next_offset)
    return True


def _ascends(index: Index) -> bool:
    if index.surplus_bytes:
        return False
    first = max(0, index.count - 2)
    entries = index.stored_entries(first, index.count - first) if index.count else []
    return all(a < c and b < d for (a, b), (c, d) in pairwise(entries)) and all(min(entry) >= 0 for entry in entries)


def _in_order(
    batches: Iterator[tuple[int, BatchHeader]], next_offset: int, offset_max: int
) -> Iterator[tuple[int, BatchHeader]]:
    """The same batches, up to the first whose offsets do not follow; gaps are allowed, for compaction leaves them."""
    for position, header in batches:
        if header.magic != MAGIC or header.last_offset_delta < 0:
            raise CorruptBatch(f"record batch format v{header.magic}, last offset delta {header.last_offset_delta}")
        if not next_offset <= header.base_offset <= header.last_offset <= offset_max:
            raise CorruptBatch(
                f"offsets {header.base_offset} to {header.last_offset}, where {next_offset} to {offset_max} can be"
            )
        yield position, header
        next_offset = header.next_offset


def checked_batches(file: files.LogFile, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch, in one buffer of fixed size; raises at the first that is not intact."""
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, max(end, 1))))
    start = filled = position = 0  # buffer[:filled] is the file from `start` on
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


def _check_large(file: files.LogFile, position: int, buffer: memoryview) -> BatchHeader:
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
