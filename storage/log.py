"""The log of one partition: segments in the order of their base offsets, the last of them takes the appends.

A batch is appended whole or not at all, gets the next free offsets, and is never changed afterwards. One thread
(the broker's loop) calls everything but `flush`, which may run in another: it only syncs files.
"""

import logging
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pylog.storage import batch, files, recovery
from pylog.storage.errors import BatchTooLarge, InvalidBatch, LogClosed, OffsetOutOfRange
from pylog.storage.files import LogFile
from pylog.storage.index import INT32_MAX
from pylog.storage.segment import LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX, Placed, Segment

__all__ = ["Appended", "FileSlice", "LogConfig", "LogFile", "PartitionLog"]

_log = logging.getLogger(__name__)

_SEGMENT_FILE = re.compile(rf"(\d{{20}})({'|'.join(map(re.escape, (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX)))})")
_RECORD_BYTES_MIN = 7  # length, attributes, two deltas, key, value and header count, a byte each


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1073741824
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10485760

    def __post_init__(self) -> None:
        for name, value, low in (
            ("segment.bytes", self.segment_bytes, batch.HEADER_BYTES),
            ("index.interval.bytes", self.index_interval_bytes, 0),
            ("segment.index.bytes", self.index_bytes_max, 24),  # room for a closing entry of the time index
        ):
            if not low <= value <= INT32_MAX:
                raise ValueError(f"{name} is {value}; it has to be between {low} and {INT32_MAX}")


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int = batch.NO_TIMESTAMP


class FileSlice(NamedTuple):
    """Bytes to send. They stay readable as long as `file` is held, whatever happens to the log."""

    file: LogFile
    position: int
    length: int


class PartitionLog:
    def __init__(self, directory: Path, config: LogConfig, segments: list[Segment], *, synced: bool) -> None:
        """Use `open`."""
        self.directory = directory
        self.config = config
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self._closed = False
        # What is not yet known to be on the disk: sealed segments, the active one, the names of the files.
        self._unsynced: list[Segment] = [] if synced else segments[:-1]
        self._active_unsynced = self._names_unsynced = not synced

    @classmethod
    def open(cls, directory: Path, config: LogConfig, *, clean: bool) -> "PartitionLog":
        """The log in `directory`, which is created if need be. `clean`: it was closed, and its files can be trusted."""
        files.make_directory(directory)
        sizes = files.sizes_in(directory)
        base_offsets = []
        for name in sorted(sizes):
            match = _SEGMENT_FILE.fullmatch(name)
            if match and match[2] == LOG_SUFFIX:
                base_offsets.append(int(match[1]))
            elif match and match[1] + LOG_SUFFIX not in sizes:
                files.remove(directory / name)  # an index whose log is gone
        segments: list[Segment] = []
        next_offset = 0
        synced = clean
        for number, base_offset in enumerate(base_offsets):
            segment = Segment(directory, base_offset, sizes, config.index_interval_bytes)
            if segments and base_offset < next_offset:
                _log.error("%s: set aside, for it repeats offsets below %d", segment.path, next_offset)
                files.rename(segment.path, segment.path.with_name(segment.path.name + ".overlapping"))
                continue
            last = number == len(base_offsets) - 1
            if clean and not last and recovery.sizes_are_sound(segment, sizes):
                segment.next_offset = base_offsets[number + 1]
            elif (last and not clean) or not recovery.ends_are_sound(segment, config.index_interval_bytes):
                recovery.recover(segment, next_offset, sealed=not last)
                synced = False
            if not last:
                segment.seal()
            segment.release()
            next_offset = segment.next_offset
            segments.append(segment)
        if not segments:
            segments.append(Segment.create(directory, 0, config.index_interval_bytes))
            synced = False
        return cls(directory, config, segments, synced=synced)

    @property
    def log_start_offset(self) -> int:
        return self._base_offsets[0]

    @property
    def log_end_offset(self) -> int:
        return self._active.next_offset

    @property
    def high_watermark(self) -> int:
        """What is committed: with one replica, everything."""
        return self._active.next_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def append(self, batches: bytearray | memoryview, leader_epoch: int) -> Appended:
        """Check every batch, give it its offsets in place, and write all of them at once.

        If this raises, the log is as it was before."""
        if self._closed:
            raise LogClosed(f"{self.directory} is closed")
        size_bytes = len(batches)
        if size_bytes > self.config.segment_bytes:
            raise BatchTooLarge(f"{size_bytes} bytes do not fit into a segment of {self.config.segment_bytes}")
        base_offset = next_offset = self._active.next_offset
        placed = []
        position = 0
        while position < size_bytes:
            header = batch.check(batches, position)
            _check_count(header)
            batch.assign(batches, position, next_offset, leader_epoch)
            last_offset = next_offset + header.last_offset_delta
            placed.append(Placed(position, last_offset, header.max_timestamp))
            next_offset = last_offset + 1
            position += header.size_bytes
        if not placed:
            raise InvalidBatch("there is no batch to append")
        last_offset = next_offset - 1
        config = self.config
        if not self._active.has_room(size_bytes, last_offset, config.segment_bytes, config.index_bytes_max):
            self._roll()
        self._active.append(batches, placed)
        self._active_unsynced = True
        return Appended(base_offset, last_offset)

    def _roll(self) -> None:
        """Any step may fail and leave the log as it was. The old indexes are stored first: a segment that has a
        successor is not scanned after a crash."""
        old = self._active
        old.store_indexes()
        new = Segment.create(self.directory, old.next_offset, self.config.index_interval_bytes)
        self._unsynced.append(old)
        self._names_unsynced = self._active_unsynced = True
        self._segments.append(new)
        self._base_offsets.append(new.base_offset)
        self._active = new
        old.seal()

    def read(self, offset: int, bytes_max: int) -> FileSlice | None:
        """Whole batches of one segment, from the one that holds `offset` (or the next, where compaction left a gap).

        At least one batch, even if it is larger than `bytes_max`. None at the end of the log."""
        if self._closed:
            raise LogClosed(f"{self.directory} is closed")
        end_offset = self._active.next_offset
        if not self._base_offsets[0] <= offset < end_offset:
            if offset == end_offset:
                return None
            raise OffsetOutOfRange(offset, self._base_offsets[0], end_offset)
        first = len(self._segments) - 1
        if offset < self._active.base_offset:
            first = bisect_right(self._base_offsets, offset) - 1
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            position = segment.position_of(offset)
            if position < segment.size_bytes:
                return FileSlice(segment.file, position, segment.end_of_read(position, bytes_max) - position)
        return None

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is as late as this or later."""
        if self._closed:
            raise LogClosed(f"{self.directory} is closed")
        for segment in self._segments:
            record = segment.first_at_time(timestamp_ms, self.log_start_offset)
            if record is not None:
                return record.timestamp_ms, record.offset
        return None

    def flush(self) -> None:
        """What was appended before this call is on the disk after it."""
        # Appends and rolls may come in between any two of these lines: first the marks, then what is marked; first
        # the active segment, then the list that a roll moves it to.
        active_unsynced, self._active_unsynced = self._active_unsynced, False
        names_unsynced, self._names_unsynced = self._names_unsynced, False
        active = self._active
        sealed, self._unsynced = self._unsynced, []
        try:
            for segment in sealed:
                segment.sync()
            if active_unsynced:
                active.file.sync()
            if names_unsynced:
                files.sync(self.directory)
        except OSError:
            if not self._closed:  # deleted meanwhile
                self._unsynced = sealed + self._unsynced
                self._active_unsynced = self._names_unsynced = True
                raise

    def close(self) -> None:
        """A log that was closed without an error may be opened as clean."""
        if self._closed:
            return
        self._active.store_indexes()
        self._active.offsets.sync()
        self._active.times.sync()
        self.flush()
        self.abandon()

    def delete(self) -> None:
        """Remove the directory. Reads that are under way go on."""
        self.abandon()
        files.remove_tree(self.directory)

    def abandon(self) -> None:
        """Let go of the files without a last write: they are to be deleted, or have failed."""
        self._closed = True
        for segment in self._segments:
            segment.release()


def _check_count(header: batch.BatchHeader) -> None:
    """The offsets of a batch that is appended are those of its records, without gaps."""
    count = header.record_count
    if count != header.last_offset_delta + 1:  # and so at least 1
        raise InvalidBatch(f"a batch with {count} records has a last offset delta of {header.last_offset_delta}")
    if header.codec == 0 and count * _RECORD_BYTES_MIN > header.size_bytes - batch.HEADER_BYTES:
        raise InvalidBatch(f"a batch of {header.size_bytes} bytes cannot hold {count} records")
