"""The log of one partition: segments in the order of their base offsets, the last of them takes the appends.

A batch is appended whole or not at all, gets the next free offsets, and is never changed afterwards. Always:

    log start offset <= last stable offset <= high watermark <= log end offset

One thread (the broker's loop) calls everything but what may run in another, one call at a time: `flush` and `bury`,
which only sync and rename files, `read_ahead_times`, which changes nothing, `fail_swap`, and `abandon` and `close`,
which end every other use. What deletes data (`truncate_*`, `move_start`) relies on the manager to have put the new
bounds on the disk first.
"""

import errno
import logging
import random
import threading
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pylog.storage import epochs, swap, time_search
from pylog.storage.appending import Sequenced, place
from pylog.storage.batch import NO_TIMESTAMP
from pylog.storage.disk import DISK
from pylog.storage.epochs import LeaderEpochs
from pylog.storage.errors import (
    BatchTooLarge,
    LogBusy,
    LogClosed,
    LogOffline,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
)
from pylog.storage.log_config import LogConfig
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import Clock, FileSystem, LogFile, SystemClock
from pylog.storage.producers import Duplicate, Producers, snapshot_name, snapshot_offsets
from pylog.storage.records import Record
from pylog.storage.recovery import CLEAN, UNCLEAN, Cut, Loader, Trust
from pylog.storage.segment import Segment
from pylog.storage.time_search import Batch, Search
from pylog.storage.transactions import AbortedTransaction, aborted_in
from pylog.storage.views import SegmentView

__all__ = ["Appended", "FileSlice", "LogConfig", "LogFile", "PartitionLog"]

_log = logging.getLogger(__name__)

# The disk has no room, or the process no descriptor, just now: nothing is lost, and the next try may succeed.
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}  # never said by fsync: if it is heard, nothing was synced yet


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int = NO_TIMESTAMP
    duplicate: bool = False  # it was in the log already, at these offsets


_appended = Appended._make  # in half the time


class FileSlice(NamedTuple):
    """Bytes to send. They stay readable as long as `file` is held, whatever happens to the log."""

    file: LogFile
    position: int
    length: int


class PartitionLog:
    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        trust: Trust = CLEAN,
        *,
        files: FileSystem = DISK,
        clock: Clock | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """The log in `directory`, which is created if need be."""
        self.directory = directory
        self.config = config
        self._files = files
        self._clock = clock or SystemClock()
        self._open_files = OpenFiles() if open_files is None else open_files
        files.make_directory(directory)
        loaded = Loader(directory, config, trust, files, self._open_files).load()
        self.cuts: list[Cut] = loaded.cuts
        self.producers: Producers = loaded.producers
        self.epochs: LeaderEpochs = loaded.epochs
        self._segments = loaded.segments
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self._active = self._segments[-1]
        self._active.created_ms = self._clock.now_ms()
        self._begin_to_age()
        self._start_offset = max(trust.log_start_offset, self._base_offsets[0])
        self._high_watermark = self._active.next_offset
        self.producers.high_watermark_moved(self._high_watermark)
        self.failure: Exception | None = None
        self._closed = False
        self._unusable = False  # closed, or failed
        # What is not yet known to be on the disk: sealed segments, the active one, names, epochs.
        self._flushing = threading.Lock()
        self._unsynced: list[Segment] = []
        if not loaded.trusted:
            self._unsynced = [part for part in self._segments[:-1] if part.next_offset >= trust.recovery_point]
        self._active_unsynced = self._names_unsynced = not loaded.trusted
        self._epochs_unstored = self._epochs_unsynced = not loaded.epochs_stored
        self.recovery_point = self._active.next_offset
        if not loaded.trusted:
            self.recovery_point = min(self.recovery_point, trust.recovery_point)
        self._flushed_offset = self._active.next_offset  # what `flush.messages` counts from
        self.unflushed_since_ms: int | None = None  # what `flush.ms` counts from
        self._changed = not loaded.trusted
        self.shape = 0  # changes when segments other than the active one come or go
        self._swapping = False
        self._detached: list[int] = []  # base offsets of segments that wait to be buried
        if self._epochs_unstored:
            self._store_epochs()

    # -- where it begins and ends

    @property
    def log_start_offset(self) -> int:
        return self._start_offset

    @property
    def first_base_offset(self) -> int:
        """Below the start where records were deleted from the middle of a segment."""
        return self._base_offsets[0]

    @property
    def log_end_offset(self) -> int:
        return self._active.next_offset

    @property
    def high_watermark(self) -> int:
        """What is committed."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended: as far as `read_committed` reads."""
        return max(self.producers.last_stable_offset(self._high_watermark), self._start_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def advance_high_watermark(self, offset: int) -> None:
        if offset > self._high_watermark:
            self._high_watermark = min(offset, self._active.next_offset)
            self.producers.high_watermark_moved(self._high_watermark)

    def segments(self) -> list[SegmentView]:
        """The last one is the active one."""
        with self._watched():
            return [
                SegmentView(
                    segment.base_offset,
                    segment.next_offset,
                    segment.size_bytes,
                    segment.latest_timestamp_ms
                    if segment.latest_timestamp_ms != NO_TIMESTAMP
                    else self._files.modified_ms(segment.path),
                )
                for segment in self._segments
            ]

    @property
    def has_looked_at_times(self) -> bool:
        """Whether `segments` has all that it needs in memory."""
        return all(segment.has_looked_at_times for segment in list(self._segments))

    def read_ahead_times(self) -> None:
        """Any thread: what `segments` will look at need not be waited for then."""
        for segment in list(self._segments):
            if not segment.has_looked_at_times:
                segment.read_ahead()

    def first_timestamp_ms(self, base_offset: int) -> int:
        """That of the first batch of this segment."""
        with self._watched():
            return self._segments[bisect_right(self._base_offsets, base_offset) - 1].first_batch_timestamp_ms()

    # -- appending

    def append(self, batches: bytearray | memoryview, leader_epoch: int) -> Appended:
        """Check every batch, give it its offsets in place, and write all of them at once.

        If this raises, the log is as it was before."""
        if self._unusable:
            self._check_open()
        size_bytes = len(batches)
        config = self.config
        if size_bytes > config.segment_bytes:
            raise BatchTooLarge(f"{size_bytes} bytes do not fit into a segment of {config.segment_bytes}")
        append_time_ms = self._clock.now_ms() if config.log_append_time else NO_TIMESTAMP
        active = self._active
        base_offset = active.next_offset
        placed, sequenced, max_timestamp_ms = place(batches, base_offset, leader_epoch, append_time_ms)
        last_offset = placed[-1][1]
        if sequenced:
            duplicate = self._check_producers(sequenced)
            if duplicate is not None:
                if len(placed) > 1:
                    raise OutOfOrderSequence("a batch that is in the log already comes together with others")
                append_time_ms = duplicate.timestamp_ms if config.log_append_time else NO_TIMESTAMP
                return Appended(duplicate.base_offset, duplicate.last_offset, append_time_ms, duplicate=True)
        try:
            if not (
                active.has_room(size_bytes, last_offset, config.segment_bytes, config.index_bytes_max)
                and (NO_TIMESTAMP < max_timestamp_ms <= self._young_until_ms or not self._is_too_old(max_timestamp_ms))
            ):
                self._roll()
                active = self._active
            active.append(batches, placed)
        except OSError as error:
            self._active_unsynced = self._changed = True  # a part may have been written, and cut again
            if error.errno not in PASSING:
                self._fail(error)
            raise
        for header, marker in sequenced:
            ended = self.producers.applied(header, marker)
            if ended is not None and ended.aborted:
                active.note_aborted(ended.index_entry())
                self._names_unsynced = True  # it may have made the file
        known_epochs = self.epochs.entries
        if not known_epochs or leader_epoch > known_epochs[-1].epoch:
            self._epochs_unstored |= self.epochs.assign(leader_epoch, base_offset)
        if self._epochs_unstored:
            self._store_epochs()
        self._active_unsynced = self._changed = True
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = self._clock.now_ms()
        return _appended((base_offset, last_offset, append_time_ms, False))

    def _check_producers(self, sequenced: list[Sequenced]) -> Duplicate | None:
        for header, marker in sequenced:
            if marker is not None:
                self.producers.check_marker(header, marker)
        data = [header for header, _ in sequenced if not header.is_control]
        return self.producers.check(data) if data else None

    def _is_too_old(self, timestamp_ms: int) -> bool:
        """`segment.ms`, counted as Kafka counts it: in the batches' own time where they have one."""
        active = self._active
        first_ms = active.first_timestamp_ms
        if first_ms is None:
            if not active.size_bytes:
                return False
            first_ms = active.first_batch_timestamp_ms()
        if first_ms != NO_TIMESTAMP and timestamp_ms != NO_TIMESTAMP:
            self._young_until_ms = first_ms + self._roll_after_ms
            return timestamp_ms - first_ms > self._roll_after_ms
        return self._clock.now_ms() - active.created_ms > self._roll_after_ms

    def _begin_to_age(self) -> None:
        """A log to be compacted rolls in time for `max.compaction.lag.ms`: the active segment is never compacted."""
        config = self.config
        after_ms = min(config.segment_ms, config.compaction_lag_ms_max) if config.compact else config.segment_ms
        jitter_ms = min(config.segment_jitter_ms, after_ms)
        self._roll_after_ms = after_ms - (random.randrange(jitter_ms) if jitter_ms else 0)
        self._young_until_ms = NO_TIMESTAMP  # no batch up to this time makes the active segment too old

    def reconfigure(self, config: LogConfig) -> None:
        """From the next append, roll, retention or compaction on."""
        self.config = config
        self._begin_to_age()
        for segment in self._segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty: that would reuse its base offset."""
        with self._watched():
            if self._active.size_bytes:
                self._roll()

    def _roll(self) -> None:
        """Any step may fail and leave the log as it was. The old indexes are stored first: a segment that has a
        successor need not be scanned after a crash."""
        old = self._active
        old.store_indexes()
        self._store_snapshot()
        new = Segment.create(
            self.directory, old.next_offset, self.config.index_interval_bytes, self._files, self._open_files
        )
        new.created_ms = self._clock.now_ms()
        self._unsynced.append(old)
        self._names_unsynced = self._active_unsynced = self._changed = True
        self._segments.append(new)
        self._base_offsets.append(new.base_offset)
        self._active = new
        self._begin_to_age()
        old.seal()

    def _store_snapshot(self) -> None:
        """The producers' state at the end of the log; where it is lost, an older one and the batches behind it do."""
        path = self.directory / snapshot_name(self.log_end_offset)
        self._files.replace(path, self.producers.snapshot(), durable=False)

    def _store_epochs(self) -> None:
        """If this fails the next append tries again. The recovery point waits for it: behind it the batches tell.

        Only the owner's thread stores them, so that no two write at once."""
        self._epochs_unstored = True
        try:
            self._write_epochs()
        except OSError as error:
            _log.warning("%s: %s; %s is stored later", self.directory, error, epochs.FILE_NAME)

    def _write_epochs(self) -> None:
        self._files.replace(self.directory / epochs.FILE_NAME, self.epochs.encode(), durable=False)
        self._epochs_unsynced = self._names_unsynced = True
        self._epochs_unstored = False

    # -- reading

    def read(self, offset: int, bytes_max: int, end_offset: int | None = None) -> FileSlice | None:
        """Whole batches of one segment, from the one that holds `offset` (or the next, where compaction left a gap),
        up to `end_offset` (the end of the log if not given), where a batch begins.

        At least one batch, even if it is larger than `bytes_max`. None at the end."""
        if self._unusable:
            self._check_open()
        log_end_offset = self._active.next_offset
        if not self._start_offset <= offset < log_end_offset:
            if offset == log_end_offset:
                return None
            raise OffsetOutOfRange(offset, self._start_offset, log_end_offset)
        if end_offset is None or end_offset > log_end_offset:
            end_offset = log_end_offset
        try:
            return self._slice(offset, bytes_max, end_offset)
        except OSError as error:
            if error.errno not in PASSING:
                self._fail(error)
            raise

    def _slice(self, offset: int, bytes_max: int, end_offset: int) -> FileSlice | None:
        first = len(self._segments) - 1
        if offset < self._active.base_offset:
            first = bisect_right(self._base_offsets, offset) - 1
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            if segment.base_offset >= end_offset:
                return None
            position = segment.position_of(offset)
            end = segment.size_bytes
            if segment.next_offset > end_offset:
                end = segment.position_of(end_offset)
            if position < end:
                return FileSlice(segment.file, position, min(segment.end_of_read(position, bytes_max), end) - position)
        return None

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is as late as this or later."""
        with self._watched():
            return time_search.run(self.search_time(timestamp_ms))

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the latest record, the first of them if there are several."""
        with self._watched():
            return time_search.run(self.search_latest())

    def search_time(self, timestamp_ms: int) -> Search[tuple[int, int] | None]:
        """As `offset_at_time`, in steps that `step` takes."""
        return time_search.first_at_time(list(self._segments), timestamp_ms, self._start_offset)

    def search_latest(self) -> Search[tuple[int, int] | None]:
        number = bisect_right(self._base_offsets, self._start_offset) - 1
        return time_search.latest(self._segments[number:], self._start_offset)

    def step(self, search: Search[Any], records: Sequence[Record] | None) -> Batch | None:
        """The next step of a search, with the records that its last one asked for (None at first, () for none).
        StopIteration has what was found."""
        with self._watched():
            return next(search) if records is None else search.send(records)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with records in the range; a `read_committed` reader drops them."""
        first = max(bisect_right(self._base_offsets, start_offset) - 1, 0)
        with self._watched():
            return aborted_in(self._aborted_from(first), start_offset, end_offset)

    def _aborted_from(self, number: int) -> Iterator[AbortedTransaction]:
        for segment in self._segments[number:]:
            yield from segment.aborted()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """A disk that cannot be read takes the log offline."""
        self._check_open()
        try:
            yield
        except OSError as error:
            if error.errno not in PASSING:
                self._fail(error)
            raise

    # -- the disk

    def flush(self) -> None:
        """What was appended before this call is on the disk after it. A sync that failed is not tried again: what it
        was to keep may be gone, and a second one would say that all is well."""
        with self._flushing:
            self._check_open()
            # Appends and rolls may come in between any two of these lines: first the end, then the marks, then what
            # is marked; first the active segment, then the list that a roll moves it to.
            self.unflushed_since_ms = None
            end_offset = self._active.next_offset
            active_unsynced, self._active_unsynced = self._active_unsynced, False
            names_unsynced, self._names_unsynced = self._names_unsynced, False
            epochs_unsynced, self._epochs_unsynced = self._epochs_unsynced, False
            active = self._active
            sealed, self._unsynced = self._unsynced, []
            complete = not (active.has_unstored_aborts or self._epochs_unstored)
            try:
                for segment in sealed:
                    self._sync_sealed(segment)
                if active_unsynced or end_offset != self._flushed_offset:  # an append moves the end, then marks it
                    active.sync_log()
                if epochs_unsynced:
                    self._files.sync(self.directory / epochs.FILE_NAME)
                if names_unsynced:
                    self._files.sync(self.directory)
            except OSError as error:
                if self._closed:  # deleted meanwhile
                    return
                if error.errno in NO_DESCRIPTOR:
                    self._unsynced[:0] = sealed
                    self._active_unsynced = self._names_unsynced = True
                    self._epochs_unsynced |= epochs_unsynced
                    self.unflushed_since_ms = self._clock.now_ms()
                    raise
                self._fail(error)
                raise LogOffline(f"{self.directory}: {error}") from error
            self._flushed_offset = end_offset
            if complete and end_offset > self.recovery_point:
                self.recovery_point = end_offset

    def _sync_sealed(self, segment: Segment) -> None:
        snapshot = self.directory / snapshot_name(segment.next_offset)  # taken when it was sealed
        try:
            segment.sync()
            if self._files.size_of(snapshot) is not None:
                self._files.sync(snapshot)
        except FileNotFoundError:
            if segment in self._segments and not self._swapping:  # else deleted or compacted meanwhile
                raise

    @property
    def flush_is_due(self) -> bool:
        """`flush.messages`: whoever appended flushes before it answers."""
        return self._active.next_offset - self._flushed_offset >= self.config.flush_messages

    @property
    def has_sealed_unsynced(self) -> bool:
        return bool(self._unsynced)

    def close(self) -> None:
        """A log that was closed without an error may be opened as clean."""
        if self._closed:
            return
        if self.failure is not None:
            raise LogOffline(f"{self.directory}: {self.failure}")
        if self._changed:
            self._active.store_indexes()
            if self._epochs_unstored:
                self._write_epochs()
            with_snapshot = len(self.producers) or self._snapshots()
            if with_snapshot:
                self._store_snapshot()
                self._names_unsynced = True
            try:
                if with_snapshot:
                    self._files.sync(self.directory / snapshot_name(self.log_end_offset))
                self._active.sync()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    self._fail(error)
                raise
            self._active_unsynced = False
            self.flush()
        self.abandon()

    def _snapshots(self) -> list[int]:
        return snapshot_offsets(self._files.sizes_in(self.directory))

    def abandon(self) -> None:
        """Let go of the files without a last write: they are to be deleted, or have failed."""
        self._closed = self._unusable = True
        for segment in self._segments:
            segment.release()

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            self._unusable = True
            _log.error("%s is offline: %s", self.directory, error)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.directory} is closed")
        if self.failure is not None:
            raise LogOffline(f"{self.directory} is offline: {self.failure}")

    # -- deleting, at the front

    def move_start(self, offset: int) -> None:
        """Records below `offset` are deleted. Their segments go with `detach_deleted`, when this is on the disk."""
        self._check_open()
        if offset > self._high_watermark:
            raise OffsetOutOfRange(offset, self._start_offset, self._high_watermark)
        if offset > self._start_offset:
            self._start_offset = offset
            self._changed = True

    def detach_deleted(self, *, stored: bool = True) -> list[int]:
        """The base offsets of segments that lie wholly below the log's start, are no longer part of it, and wait to be
        buried. The active segment is rolled if everything in it is deleted.

        Unless the start is `stored`, the names of the segments that are left say where the log begins: only one that
        begins with a segment, or has all of its records deleted, can do without, and takes no more room."""
        self._check_open()
        if stored and self.epochs.truncate_from_start(self._start_offset):  # not before the start is on the disk
            self._store_epochs()
        if self._swapping:
            return []
        if not stored:
            if self._start_offset not in (*self._base_offsets, self._active.next_offset):
                return []
        elif self._start_offset == self._active.next_offset:
            self.roll()
        count = bisect_right(self._base_offsets, self._start_offset) - 1
        doomed = self._segments[:count]
        if doomed:
            self.shape += 1
            del self._segments[:count], self._base_offsets[:count]
        for segment in doomed:
            segment.release()
        self._detached += [segment.base_offset for segment in doomed]
        return list(self._detached)

    @property
    def has_detached(self) -> bool:
        """Also those that could not be buried when they were first to be."""
        return bool(self._detached)

    def bury(self, base_offsets: list[int], *, one_by_one: bool = False) -> Iterator[Path]:
        """Give the files of detached segments their last names. Any thread: the log may have been deleted since, and
        another one have its directory; or it may have been emptied, and begun anew with the same offsets.

        One by one, each is on the disk before the next: where only names say where the log begins, a crash must not
        leave an older segment without a newer one."""
        with self._flushing:
            if self._unusable:
                return
            self._sync_names()  # the log begins with a name that is on the disk, or it seems to be cut
            for base_offset in base_offsets:
                if base_offset in self._detached:
                    yield from swap.set_deleted(self.directory, base_offset, self._files)
                    self._files.remove(self.directory / snapshot_name(base_offset))
                    if one_by_one:
                        self._sync_names()
                    self._detached.remove(base_offset)

    def _sync_names(self) -> None:
        try:
            self._files.sync(self.directory)
        except OSError as error:
            if not self._closed and error.errno not in NO_DESCRIPTOR:
                self._fail(error)
            raise

    # -- compaction

    @property
    def is_swapping(self) -> bool:
        return self._swapping

    def begin_swap(self, shape: int, base_offsets: list[int]) -> bool:
        """Get ready for the files of these segments to be replaced by compacted ones. False if the log has changed
        its segments since it was looked at, and the compacted ones are worthless."""
        self._check_open()
        if shape != self.shape or self._swapping:
            return False
        wanted = set(base_offsets)
        try:
            with self._watched():
                for segment in self._segments:
                    if segment.base_offset in wanted:
                        segment.pin()
        except BaseException:
            self._unpin(wanted)
            raise
        self._swapping = True
        return True

    def _unpin(self, base_offsets: Collection[int]) -> None:
        for segment in self._segments:
            if segment.base_offset in base_offsets:
                segment.release()

    def cancel_swap(self, base_offsets: list[int]) -> None:
        """No file was replaced."""
        self._unpin(set(base_offsets))
        self._swapping = False

    def finish_swap(self, groups: list[list[int]], sizes: dict[str, int] | None = None) -> None:
        """The files are in place. A group is the base offsets of the old segments; the new one has the first. `sizes`
        are those of the new files, if somebody has looked already."""
        try:
            self._finish_swap(groups, sizes)
        except Exception as error:
            self.fail_swap(error)
            raise

    def _finish_swap(self, groups: list[list[int]], sizes: dict[str, int] | None) -> None:
        if sizes is None:
            sizes = {}
            for first, *_ in groups:
                sizes |= swap.sizes_of(self.directory, first, self._files)
        for base_offsets in groups:
            first = self._base_offsets.index(base_offsets[0])
            old = self._segments[first : first + len(base_offsets)]
            new = Segment(
                self.directory,
                base_offsets[0],
                sizes,
                self.config.index_interval_bytes,
                self._files,
                self._open_files,
            )
            new.next_offset = old[-1].next_offset
            self._segments[first : first + len(old)] = [new]
            self._base_offsets[first : first + len(old)] = [new.base_offset]
            for segment in old:
                segment.release()
        self._unsynced = [segment for segment in self._unsynced if segment in self._segments]
        self.shape += 1
        self._swapping = False

    def fail_swap(self, error: Exception) -> None:
        """The files may be half replaced: only the next start can tell."""
        self._swapping = False
        self._fail(error)

    # -- deleting, at the end

    def truncate_to(self, offset: int) -> None:
        """Records from `offset` on are gone when this returns, and stay gone. A batch that holds the offset goes
        whole."""
        self._check_open()
        self._check_not_swapping()
        if offset >= self._active.next_offset:
            return
        if offset <= self._base_offsets[0]:
            self.truncate_fully_and_start_at(offset)
            return
        with self._flushing, self._or_offline():
            self._drop_segments_from(bisect_right(self._base_offsets, offset))
            active = self._active
            active.truncate(active.position_of(offset))
            active.sync_log()
            self._ended_at(active.next_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """An empty log whose next offset is this one."""
        self._check_open()
        self._check_not_swapping()
        with self._flushing, self._or_offline():
            self._drop_segments_from(0)
            while self._detached:  # what is appended now may end where one of them begins
                for path in swap.set_deleted(self.directory, self._detached.pop(), self._files):
                    self._files.remove(path)
            # What follows from the old batches goes before the new segment comes: nobody could tell it apart then.
            for stale in self._snapshots():
                self._files.remove(self.directory / snapshot_name(stale))
            self.epochs.clear()
            self._files.replace(self.directory / epochs.FILE_NAME, self.epochs.encode(), durable=True)
            new = Segment.create(
                self.directory, offset, self.config.index_interval_bytes, self._files, self._open_files
            )
            self._segments.append(new)
            self._base_offsets.append(offset)
            self._active = new
            self._start_offset = offset
            self._ended_at(offset)

    def _drop_segments_from(self, number: int) -> None:
        """The newest first, each on the disk before the next: a crash leaves a shorter log, never one with a hole."""
        self.shape += 1
        while len(self._segments) > number:
            segment = self._segments.pop()
            self._base_offsets.pop()
            segment.release()
            for path in swap.set_deleted(self.directory, segment.base_offset, self._files):
                self._files.remove(path)
            self._files.sync(self.directory)
        if self._segments:
            self._active = self._segments[-1]

    def _ended_at(self, end_offset: int) -> None:
        """Everything that follows from the batches follows the truncation."""
        self._active.created_ms = self._clock.now_ms()
        self._begin_to_age()
        self._unsynced = [segment for segment in self._unsynced if segment in self._segments[:-1]]
        if self._start_offset > end_offset:
            self._start_offset = end_offset
        self._high_watermark = max(min(self._high_watermark, end_offset), self._start_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self._flushed_offset = max(min(self._flushed_offset, end_offset), self._start_offset)
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(self._start_offset)
        for offset in self._snapshots():
            if offset > end_offset:
                self._files.remove(self.directory / snapshot_name(offset))
        loader = Loader(self.directory, self.config, UNCLEAN, self._files, self._open_files)
        self.producers = loader.producers_of(self._segments)
        self.producers.high_watermark_moved(self._high_watermark)
        self._files.replace(self.directory / epochs.FILE_NAME, self.epochs.encode(), durable=True)
        self._epochs_unstored = False
        self._active_unsynced = self._names_unsynced = self._changed = True

    def _check_not_swapping(self) -> None:
        if self._swapping:
            raise LogBusy(f"{self.directory}: compacted segments are being put in place; try again")

    @contextmanager
    def _or_offline(self) -> Iterator[None]:
        """A change that fails half way leaves a log of which memory and disk may think differently."""
        try:
            yield
        except (OSError, StorageError) as error:
            self._fail(error)
            raise
