"""Reading the batches of a file one after the other, and telling whether they can be what was written.

No length is believed before the file is known to hold as much: every walk ends, at its end or with an error."""

import struct
from collections.abc import Iterator

from pylog.storage.batch import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    check,
    read_header,
    read_prefix,
)
from pylog.storage.checksum import crc32c
from pylog.storage.errors import CorruptBatch, StorageError
from pylog.storage.ports import LogFile

CHUNK_BYTES = 1 << 20


_PREFIX = struct.Struct(">qi")
_FRONT = struct.Struct(">qi11xi")  # base offset, length, last offset delta
READ_AHEAD_BYTES = 8192  # two intervals of an index: nearly always one read finds the batch


# -- by their headers alone


def headers(file: LogFile, end: int, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch from there on; records are not read, CRCs not checked."""
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = _read(file, end, position), position, 0
        header = read_header(chunk, at)
        size_bytes = _checked_size(file, end, position, header.length)
        yield position, header
        position += size_bytes


def find_offset(file: LogFile, end: int, position: int, offset: int) -> tuple[int, int, int] | None:
    """(position, base offset, last offset) of the first batch from `position` on that ends at `offset` or later."""
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + _FRONT.size > len(chunk):
            chunk, chunk_start, at = _read(file, end, position), position, 0
        base_offset, length, last_offset_delta = _FRONT.unpack_from(chunk, at)
        if base_offset + last_offset_delta >= offset:
            return position, base_offset, base_offset + last_offset_delta
        position += _checked_size(file, end, position, length)
    return None


def end_before(file: LogFile, end: int, position: int, limit: int) -> tuple[int, int, int]:
    """(position, base offset, end) of the batch that holds the byte at `limit`. One begins at `position`."""
    chunk, chunk_start = b"", position
    while True:
        at = position - chunk_start
        if at + PREFIX_BYTES > len(chunk):
            chunk, chunk_start, at = _read(file, end, position), position, 0
        base_offset, length = _PREFIX.unpack_from(chunk, at)
        behind = position + _checked_size(file, end, position, length)
        if behind > limit:
            return position, base_offset, behind
        position = behind


def _read(file: LogFile, end: int, position: int) -> bytes:
    chunk = file.read_at(position, min(READ_AHEAD_BYTES, end - position))
    if len(chunk) < HEADER_BYTES:
        raise CorruptBatch(f"{file.path}: the file ends in the batch header at byte {position}")
    return chunk


def _checked_size(file: LogFile, end: int, position: int, length: int) -> int:
    size_bytes = PREFIX_BYTES + length
    if size_bytes < HEADER_BYTES or size_bytes > end - position:
        raise CorruptBatch(f"{file.path}: the batch at byte {position} says it has {size_bytes} bytes")
    return size_bytes


# -- in whole


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
