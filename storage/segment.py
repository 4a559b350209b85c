"""One segment: the batches of every offset in [base_offset, next_offset), in order, in one `.log` file.

The `.log` file is the truth. Its two indexes are a function of it (`_note` is that function, live and in
recovery alike), so a damaged or missing index costs a scan and never data. Nothing is opened before it is
needed: an idle partition holds no descriptor.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pylog.storage import files
from pylog.storage.batch import HEADER_BYTES, NO_TIMESTAMP, PREFIX_BYTES, BatchHeader, read_header
from pylog.storage.errors import CorruptBatch, StorageError
from pylog.storage.index import INT32_MAX, OFFSET_ENTRY, TIME_ENTRY, Index
from pylog.storage.records import Record, decode_batch

LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX = ".log", ".index", ".timeindex"

_PREFIX = struct.Struct(">qi")
_FRONT = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_READ_AHEAD_BYTES = 8192  # two intervals of the index: nearly always one read finds the batch
_RECENT_MAX = 128


class Placed(NamedTuple):
    """A batch that has its place in the log; `position` counts from the start of its append or file."""

    position: int
    last_offset: int
    max_timestamp_ms: int


class Segment:
    __slots__ = (
        "_appender",
        "_file",
        "_index_interval_bytes",
        "_indexed_position",
        "_max_timestamp_offset",
        "_recent_last_offsets",
        "_recent_positions",
        "base_offset",
        "max_timestamp_ms",
        "next_offset",
        "offsets",
        "path",
        "size_bytes",
        "times",
    )

    def __init__(self, directory: Path, base_offset: int, sizes: dict[str, int], index_interval_bytes: int) -> None:
        """The segment whose files have these sizes. Nothing is read; `recovery` knows how far to trust them."""
        name = f"{base_offset:020d}"
        self.path = directory / (name + LOG_SUFFIX)
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = sizes.get(name + LOG_SUFFIX, 0)
        self.offsets = Index(directory / (name + OFFSET_SUFFIX), OFFSET_ENTRY, sizes.get(name + OFFSET_SUFFIX, 0))
        self.times = Index(directory / (name + TIME_SUFFIX), TIME_ENTRY, sizes.get(name + TIME_SUFFIX, 0))
        self.max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._indexed_position = 0
        self._file: files.LogFile | None = None
        self._appender: files.LogAppender | None = None
        # Where the newest batches lie: most reads are at the tail, and answered from here without a system call.
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")

    @classmethod
    def create(cls, directory: Path, base_offset: int, index_interval_bytes: int) -> "Segment":
        segment = cls(directory, base_offset, {}, index_interval_bytes)
        for path in (segment.offsets.path, segment.times.path, segment.path):  # the log last: it makes the segment
            files.create_empty(path)
        return segment

    @property
    def file(self) -> files.LogFile:
        if self._file is None:
            self._file = files.LogFile(self.path)
        return self._file

    # -- writing

    def append(self, data: files.Buffer, batches: Iterable[Placed]) -> None:
        """One write. If it fails the segment is as it was before."""
        if self._appender is None:
            self._appender = files.LogAppender(self.path)
        start = self.size_bytes
        self._appender.append(data, start)
        self.size_bytes = start + len(data)
        for batch in batches:
            self._note(start + batch.position, batch.last_offset, batch.max_timestamp_ms)

    def _note(self, position: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Bring indexes and end up to date with the batch at `position`."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self._max_timestamp_offset = last_offset
        if position - self._indexed_position > self._index_interval_bytes:
            self.offsets.append(last_offset - self.base_offset, position)
            self._note_max_timestamp()
            self._indexed_position = position
        self.next_offset = last_offset + 1
        self._recent_last_offsets.append(last_offset)
        self._recent_positions.append(position)
        if len(self._recent_positions) > _RECENT_MAX:
            del self._recent_last_offsets[: _RECENT_MAX // 2]
            del self._recent_positions[: _RECENT_MAX // 2]

    def _note_max_timestamp(self) -> None:
        last = self.times.last
        if self.max_timestamp_ms > (NO_TIMESTAMP if last is None else last[0]):
            self.times.append(self.max_timestamp_ms, self._max_timestamp_offset - self.base_offset)

    def has_room(self, size_bytes: int, last_offset: int, segment_bytes: int, index_bytes_max: int) -> bool:
        if self.size_bytes == 0:
            return True  # an empty segment never rolls: that would reuse its base offset
        return (
            self.size_bytes + size_bytes <= segment_bytes
            and last_offset - self.base_offset <= INT32_MAX
            and self.offsets.count < index_bytes_max // OFFSET_ENTRY.size
            and self.times.count < index_bytes_max // TIME_ENTRY.size - 1  # one is kept for the closing entry
        )

    def store_indexes(self) -> None:
        """All entries into the files, and the maximum timestamp as the last one. May be repeated."""
        self._note_max_timestamp()
        self.offsets.store()
        self.times.store()

    def seal(self) -> None:
        """After `store_indexes`: no more appends, only reads."""
        self._appender = None
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")

    def sync(self) -> None:
        files.sync(self.path)
        self.offsets.sync()
        self.times.sync()

    def release(self) -> None:
        """Descriptors go when nobody reads any more."""
        self._file = self._appender = None

    # -- rebuilding, for `recovery`

    def rebuild(self, batches: Iterable[tuple[int, BatchHeader]]) -> None:
        """Index the batches of the log anew. Size and next offset follow: also when the iterator raises, they
        are those of the batches that it gave."""
        self.offsets.replace(b"")
        self.times.replace(b"")
        self.next_offset = self._max_timestamp_offset = self.base_offset
        self.max_timestamp_ms = NO_TIMESTAMP
        self._indexed_position = 0
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")
        end = 0
        try:
            for position, header in batches:
                self._note(position, header.last_offset, header.max_timestamp)
                end = position + header.size_bytes
        finally:
            self.size_bytes = end  # not before: the iterator may look at it

    def adopt(self, next_offset: int) -> None:
        """Go on from indexes that were found sound."""
        self.next_offset = next_offset
        if self.offsets.last is not None:
            self._indexed_position = self.offsets.last[1]
        if self.times.last is not None:
            self.max_timestamp_ms = self.times.last[0]
            self._max_timestamp_offset = self.base_offset + self.times.last[1]

    # -- reading

    def position_of(self, offset: int) -> int:
        """Where the first batch starts that ends at `offset` or later; the size of the segment if none does."""
        recent = self._recent_last_offsets
        if recent and offset > recent[0]:
            number = bisect_left(recent, offset)
            return self._recent_positions[number] if number < len(recent) else self.size_bytes
        entry = self.offsets.floor(offset - self.base_offset)
        position = self.offsets[entry][1] if entry >= 0 else 0
        chunk, chunk_start, end = b"", position, self.size_bytes
        while position < end:
            at = position - chunk_start
            if at + _FRONT.size > len(chunk):
                chunk, chunk_start, at = self._read(position), position, 0
            base_offset, length, last_offset_delta = _FRONT.unpack_from(chunk, at)
            if base_offset + last_offset_delta >= offset:
                break
            position += self._checked_size(position, length)
        return position

    def end_of_read(self, start: int, bytes_max: int) -> int:
        """Where the last whole batch ends within `bytes_max` of `start`; the first batch is always whole."""
        limit = start + bytes_max
        if limit >= self.size_bytes:
            return self.size_bytes
        recent = self._recent_positions
        if recent and recent[0] <= limit:
            number = bisect_right(recent, limit) - 1
            if recent[number] > start:
                return recent[number]
            position = start
        else:
            entry = self.offsets.floor(limit, column=1)
            position = max(start, self.offsets[entry][1]) if entry >= 0 else start
        chunk, chunk_start = b"", position
        while True:
            at = position - chunk_start
            if at + PREFIX_BYTES > len(chunk):
                chunk, chunk_start, at = self._read(position), position, 0
            _, length = _PREFIX.unpack_from(chunk, at)
            behind = position + self._checked_size(position, length)
            if behind > limit:
                return position if position > start else behind
            position = behind

    def _read(self, position: int) -> bytes:
        chunk = self.file.read_at(position, min(_READ_AHEAD_BYTES, self.size_bytes - position))
        if len(chunk) < HEADER_BYTES:
            raise CorruptBatch(f"{self.path}: the file ends in the batch header at byte {position}")
        return chunk

    def _checked_size(self, position: int, length: int) -> int:
        size_bytes = PREFIX_BYTES + length
        if size_bytes < HEADER_BYTES or size_bytes > self.size_bytes - position:
            raise CorruptBatch(f"{self.path}: the batch at byte {position} says it has {size_bytes} bytes")
        return size_bytes

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from there on; records are not read, CRCs not checked."""
        chunk, chunk_start = b"", position
        while position < self.size_bytes:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = self._read(position), position, 0
            header = read_header(chunk, at)
            size_bytes = self._checked_size(position, header.length)
            yield position, header
            position += size_bytes

    def first_at_time(self, timestamp_ms: int, offset_min: int) -> Record | None:
        """The first record from `offset_min` on with this timestamp or a later one."""
        last = self.times.last
        if timestamp_ms > max(self.max_timestamp_ms, NO_TIMESTAMP if last is None else last[0]):
            return None
        entry = self.times.floor(timestamp_ms)
        from_offset = self.base_offset + self.times[entry][1] if entry >= 0 else self.base_offset
        for position, header in self.headers(self.position_of(max(from_offset, offset_min))):
            if header.max_timestamp >= timestamp_ms:
                for record in self._records(position, header.size_bytes):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= offset_min:
                        return record
        return None

    def _records(self, position: int, size_bytes: int) -> list[Record]:
        try:
            return decode_batch(self.file.read_at(position, size_bytes))
        except StorageError as error:
            raise CorruptBatch(f"{self.path}: the batch at byte {position} cannot be read: {error}") from error
