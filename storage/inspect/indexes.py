"""Do the entries of a segment's indexes agree with its batches?

Each check sees the batches of the segment in order, and goes through its index beside them: neither is held in
memory. An index is right if every entry, read as a reader uses it, leads to the right place. It need not be complete.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from pylog.storage.batch import NO_TIMESTAMP
from pylog.storage.index import OFFSET_ENTRY, TIME_ENTRY
from pylog.storage.inspect.batches import Batch, Hole
from pylog.storage.inspect.findings import Report
from pylog.storage.inspect.state import Place
from pylog.storage.ports import FileSystem

_ENTRY_BYTES_MAX = TIME_ENTRY.size
_CHUNK_BYTES = 64 * 1024 // 24 * 24  # whole entries of either kind


class IndexEntries:
    """The entries of an `.index` or `.timeindex`, up to the unused room behind the last one.

    Apache Kafka allocates the index of its active segment in advance: zeros up to the end are room, not entries."""

    def __init__(self, path: Path, entry: struct.Struct, size_bytes: int, files: FileSystem) -> None:
        self.path = path
        self._entry = entry
        self._file = files.open(path) if size_bytes else None
        self.size_bytes = size_bytes
        self.surplus_bytes = size_bytes % entry.size
        self.room_bytes = 0  # known when the entries have been gone through

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """(position, first column, second column)."""
        end, position, looked = self.size_bytes - self.surplus_bytes, 0, False
        while position < end:
            chunk = self._read(position, end)
            for first, second in self._entry.iter_unpack(chunk):
                if first == second == 0 and not looked:
                    looked = True
                    used = self._used_bytes(position, end)
                    self.room_bytes, end = end - used, used
                if position >= end:
                    return
                yield position, first, second
                position += self._entry.size

    def _read(self, position: int, end: int) -> bytes:
        if self._file is None:
            return b""
        chunk = self._file.read_at(position, min(_CHUNK_BYTES, end - position))
        if len(chunk) < min(_CHUNK_BYTES, end - position):
            raise OSError(f"the file ended at byte {position + len(chunk)} while it was read")
        return chunk

    def _used_bytes(self, position: int, end: int) -> int:
        """Where the last entry ends that is not all zeros; none before `position` is."""
        used = position
        while position < end:
            chunk = self._read(position, end)
            rest = len(chunk.rstrip(b"\0"))
            if rest:
                used = position + -(-rest // self._entry.size) * self._entry.size
            position += len(chunk)
        return used


class _IndexCheck:
    """What the two have in common: an entry that waits for its batch, order, and the end of the file."""

    def __init__(self, entries: IndexEntries, place: Place, report: Report) -> None:
        self._entries = entries
        self._path = entries.path
        self._iterator = iter(entries)
        self._base_offset = place.base_offset
        self._report = report
        self._place = place
        self._before: tuple[int, int] | None = None
        self._entry: tuple[int, int, int] | None = None
        self._ahead = next(self._iterator, None)
        self._advance()

    def _advance(self) -> None:
        """The next entry that is in order. One that is not is reported, and not looked at further.

        Also one that is larger than its successor: taken for good it would hide all the others."""
        while self._ahead is not None:
            (position, *columns), self._ahead = self._ahead, next(self._iterator, None)
            entry = (columns[0], columns[1])
            if min(entry) < 0 or not _ascends(self._before, entry):
                after = "" if self._before is None else f" behind {self._shown(*self._before)}"
                self._wrong(position, f"{self._shown(*entry)}{after}; entries have to ascend")
            elif self._ahead is not None and not _ascends(entry, self._ahead[1:]):
                after = self._shown(*self._ahead[1:])
                self._wrong(position, f"{self._shown(*entry)} before {after}; entries have to ascend")
            else:
                self._before = entry
                self._entry = (position, *entry)
                return
        self._entry = None

    def _shown(self, first: int, second: int) -> str:
        raise NotImplementedError

    def _wrong(self, position: int, message: str, offset: int | None = None) -> None:
        self._report.add(self._place.severity, self._path, message, position=position, first_offset=offset)

    def finish_alone(self) -> None:
        """There is no log to compare the entries with."""
        while self._entry is not None:
            self._advance()
        self._finish_file()

    def _finish_file(self) -> None:
        while self._entry is not None:
            position, first, second = self._entry
            message = f"{self._shown(first, second)} is behind the end of the log"
            self._report.add(self._place.end_severity, self._path, message, position=position)
            self._advance()
        entries = self._entries
        if entries.surplus_bytes:
            whole = entries.size_bytes - entries.surplus_bytes
            message = f"{entries.surplus_bytes} bytes are no whole entry"
            self._report.add(self._place.end_severity, self._path, message, position=whole)
        # one entry of zeros may be a real one: the first record, at the beginning of time
        elif self._place.complete and entries.room_bytes and entries.size_bytes > _ENTRY_BYTES_MAX:
            used = entries.size_bytes - entries.room_bytes
            self._wrong(used, f"{entries.room_bytes} bytes of zeros, in the index of a segment that is complete")


def _ascends(before: tuple[int, int] | None, after: tuple[int, int]) -> bool:
    return before is None or (before[0] < after[0] and before[1] < after[1])


class OffsetIndexCheck(_IndexCheck):
    """An entry (offset, position): a batch starts there, and its offsets, or those of batches that were appended
    with it, end with that offset. So whoever looks for this offset or a later one may start there."""

    def __init__(self, path: Path, size_bytes: int, place: Place, report: Report, files: FileSystem) -> None:
        self._awaited: tuple[int, int] | None = None  # (position of the entry, its offset): not yet seen
        super().__init__(IndexEntries(path, OFFSET_ENTRY, size_bytes, files), place, report)

    def _shown(self, first: int, second: int) -> str:
        return f"the entry of offset {self._base_offset + first} at position {second}"

    def see(self, batch: Batch | Hole) -> None:
        size_bytes = batch.size_bytes if isinstance(batch, Hole) else batch.header.size_bytes
        while self._entry is not None and self._entry[2] < batch.position + size_bytes:
            position, relative_offset, log_position = self._entry
            offset = self._base_offset + relative_offset
            if isinstance(batch, Hole) or not batch.crc_is_right:
                pass  # damaged there, and reported: what the entry meant cannot be said
            elif log_position != batch.position:
                self._wrong(position, f"no batch starts at position {log_position}", offset)
            elif batch.header.base_offset > offset:
                self._wrong(
                    position, f"the batch at position {log_position} begins with {batch.header.base_offset}", offset
                )
            else:
                self._awaited = (position, offset)
            self._advance()
        if self._awaited is not None and isinstance(batch, Batch) and batch.crc_is_right:
            position, offset = self._awaited
            if batch.header.last_offset >= offset:
                self._awaited = None
                if batch.header.last_offset > offset:
                    self._wrong(position, "no batch ends with this offset", offset)

    def finish(self) -> None:
        if self._awaited is not None:
            position, offset = self._awaited
            message = "no batch ends with this offset"
            self._report.add(self._place.end_severity, self._path, message, position=position, first_offset=offset)
        self._finish_file()


class TimeIndexCheck(_IndexCheck):
    """An entry (timestamp, offset): up to the batch that holds the offset nothing is later, and that batch is as
    late as this. A complete segment's last entry is its maximum."""

    def __init__(self, path: Path, size_bytes: int, place: Place, report: Report, files: FileSystem) -> None:
        self._maximum = NO_TIMESTAMP  # of the records
        self._header_maximum = NO_TIMESTAMP  # also of batches that compaction has emptied: Kafka counts them
        self._certain = True  # until something damaged was passed, whose timestamps nobody knows
        super().__init__(IndexEntries(path, TIME_ENTRY, size_bytes, files), place, report)

    def _shown(self, first: int, second: int) -> str:
        return f"the entry of timestamp {first} at offset {self._base_offset + second}"

    def see(self, batch: Batch | Hole) -> None:
        if isinstance(batch, Hole) or not batch.crc_is_right:
            self._certain = False
            return
        header = batch.header
        before, self._maximum = self._maximum, max(self._maximum, header.latest_record_ms)
        self._header_maximum = max(self._header_maximum, header.max_timestamp)
        while self._entry is not None and self._base_offset + self._entry[2] <= header.last_offset:
            position, timestamp, relative_offset = self._entry
            offset = self._base_offset + relative_offset
            if self._certain and offset < header.base_offset:
                self._wrong(position, "the log does not have this offset", offset)
            elif offset >= header.base_offset and timestamp != header.max_timestamp:
                message = f"timestamp {timestamp}, where the batch has {header.max_timestamp}"
                self._wrong(position, message, offset)
            elif before > timestamp:
                self._wrong(position, f"timestamp {timestamp}, where an earlier batch has {before}", offset)
            self._advance()

    def finish(self) -> None:
        ahead = self._entry is not None
        self._finish_file()
        if not self._place.complete or ahead or not self._certain:
            return
        last = self._before[0] if self._before else 0 if self._entries.room_bytes else NO_TIMESTAMP
        if last not in (self._maximum, self._header_maximum):
            message = f"it ends with timestamp {_shown_time(last)}, the segment is complete and has {self._maximum}"
            self._report.add(self._place.severity, self._path, message)


def _shown_time(timestamp_ms: int) -> str:
    return "none" if timestamp_ms == NO_TIMESTAMP else str(timestamp_ms)
