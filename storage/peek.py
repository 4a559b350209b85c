"""What can be told of a log by its files alone, in any thread, while its owner goes on with it.

Nothing of the log's own state is used or changed, so that a look at a cold file keeps nobody waiting. The price: files
may be appended to, replaced or removed under the look. Whatever does not fit together is no answer, and None.
"""

from bisect import bisect_right
from pathlib import Path

from pylog.storage.batch import HEADER_BYTES, MAGIC, NO_TIMESTAMP, BatchHeader, read_header
from pylog.storage.index import OFFSET_ENTRY
from pylog.storage.ports import FileSystem
from pylog.storage.segment import LOG_SUFFIX, OFFSET_SUFFIX

_READ_BYTES = 8192
_INDEX_BLOCK_BYTES = 4096
_BATCHES_MAX = 20_000  # looked at in one segment: the index is sparse, and its newest entries may be in memory


def first_timestamp_ms(files: FileSystem, directory: Path, offset: int) -> int | None:
    """When the first record at `offset` or behind it was written, to within its batch: that of the batch's first
    record. None where nothing can be told."""
    try:
        sizes = files.sizes_in(directory)
        names = sorted(name for name in sizes if name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit())
        base_offsets = [int(name[: -len(LOG_SUFFIX)]) for name in names]
        first = max(bisect_right(base_offsets, offset) - 1, 0)
        for number in range(first, len(names)):  # compaction may have left none behind the offset in a segment
            found = _batch_with(files, directory / names[number], base_offsets[number], sizes, offset)
            if found is not None:
                return _time_of(found)
    except OSError:
        return None
    return None


def _time_of(header: BatchHeader) -> int | None:
    is_max = header.timestamp_type == 1 or header.delete_horizon_ms is not None
    timestamp_ms = header.max_timestamp if is_max else header.base_timestamp
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms


def _batch_with(
    files: FileSystem, path: Path, base_offset: int, sizes: dict[str, int], offset: int
) -> BatchHeader | None:
    """The first batch with records whose last one is not before the offset."""
    position = _indexed_before(files, path.with_suffix(OFFSET_SUFFIX), sizes, offset - base_offset)
    chunk, chunk_start = b"", position
    for _ in range(_BATCHES_MAX):
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = files.read_at(path, position, _READ_BYTES), position, 0
            if len(chunk) < HEADER_BYTES:
                return None
        header = read_header(chunk, at)
        if header.magic != MAGIC or header.size_bytes < HEADER_BYTES or header.base_offset < base_offset:
            return None  # not where a batch begins
        if header.last_offset >= offset and header.record_count:
            return header
        position += header.size_bytes
    return None


def _indexed_before(files: FileSystem, path: Path, sizes: dict[str, int], relative_offset: int) -> int:
    """Where to begin: the position of the last entry whose offset is before this one; 0 without any."""
    width = OFFSET_ENTRY.size
    low, high = 0, sizes.get(path.name, 0) // width  # the entries below `low` are before it, those from `high` on not
    position = 0
    while low < high:
        start = max(low, min((low + high) // 2, high - 1) - _INDEX_BLOCK_BYTES // width // 2)
        block = files.read_at(path, start * width, min(_INDEX_BLOCK_BYTES, (high - start) * width))
        entries = list(OFFSET_ENTRY.iter_unpack(block[: len(block) // width * width]))
        if not entries:
            return position
        before = bisect_right(entries, relative_offset - 1, key=lambda entry: entry[0])
        if before:
            position = max(entries[before - 1][1], 0)
        if before == len(entries):
            low = start + before
        elif before:
            return position
        else:
            high = start
    return position
