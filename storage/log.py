"""The log of one partition: segments in the order of their base offsets, the last of them takes the appends.

A batch is appended whole or not at all, gets the next free offsets, and is never changed afterwards. Always:

    log start offset <= last stable offset <= high watermark <= log end offset

One thread (the broker's loop) calls everything but what may run in another, one call at a time: `flush` and `bury`,
which only sync and rename files, `read_ahead_times`, which changes nothing, `fail_swap`, and `abandon` and `close`,
which end every other use. What deletes data (`truncate_*`, `move_start`) relies on the manager to have put the new
bounds on the disk first.
"""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pylog.storage import failed_sync, swap, time_search
from pylog.storage.age import Age
from pylog.storage.appending import Sequenced, place
from pylog.storage.batch import CONTROL, NO_TIMESTAMP
from pylog.storage.condition import NO_DESCRIPTOR, PASSING, Condition
from pylog.storage.cuts import Cut
from pylog.storage.disk import DISK
from pylog.storage.epoch_file import EpochFile
from pylog.storage.epochs import LeaderEpochs
from pylog.storage.errors import BatchLargerThanSegment, LogBusy, LogOffline, OffsetOutOfRange, OutOfOrderSequence
from pylog.storage.index import INT32_MAX
from pylog.storage.log_config import LogConfig
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import Clock, FileSystem, LogFile, SystemClock
from pylog.storage.producers import Duplicate, Producers
from pylog.storage.recovered_producers import producers_at_end
from pylog.storage.recovery import CLEAN, Loaded, Loader, Trust
from pylog.storage.segment import Segment
from pylog.storage.segments import FileSlice, Segments
from pylog.storage.snapshots import Snapshots
from pylog.storage.time_search import Batch, Search
from pylog.storage.transactions import AbortedTransaction, aborted_in
from pylog.storage.unsynced import Unsynced
from pylog.storage.views import SegmentView

__all__ = ["Appended", "FileSlice", "LogConfig", "LogFile", "PartitionLog"]


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int = NO_TIMESTAMP
    duplicate: bool = False  # it was in the log already, at these offsets


_new = tuple.__new__  # makes a named tuple in half the time


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
        open_files = OpenFiles() if open_files is None else open_files
        files.make_directory(directory)
        loaded = self._loaded(trust, open_files)
        self.cuts: list[Cut] = loaded.cuts
        self.producers: Producers = loaded.producers
        self.epochs: LeaderEpochs = loaded.epochs
        self._segments = Segments(directory, loaded.segments, files, open_files)
        self._age = Age(config, self._clock)
        self.log_start_offset = max(trust.log_start_offset, self.first_base_offset)
        self.high_watermark = self.log_end_offset  # what is committed
        self.producers.high_watermark_moved(self.high_watermark)
        self.condition = Condition(directory, files)
        self._has_note = loaded.has_note
        self._changed = not loaded.trusted
        self._unsynced = Unsynced(self._segments, trusted=loaded.trusted, recovery_point=trust.recovery_point)
        self._snapshots = Snapshots(directory, files)
        self._epoch_file = EpochFile(directory, self.epochs, files, is_stored=loaded.epochs_stored)
        self._flushing = threading.Lock()  # held while files are synced, renamed or removed
        if not loaded.epochs_stored:
            self._store_epochs()

    def _loaded(self, trust: Trust, open_files: OpenFiles) -> Loaded:
        try:
            return Loader(self.directory, self.config, trust, self._files, open_files).load()
        except OSError as error:
            if error.errno not in PASSING:
                failed_sync.leave_note(self.directory, self._files)
            raise

    @property
    def failure(self) -> Exception | None:
        """Why the log is offline."""
        return self.condition.failure

    # -- where it begins and ends

    @property
    def first_base_offset(self) -> int:
        """Below the start where records were deleted from the middle of a segment."""
        return self._segments.base_offsets[0]

    @property
    def log_end_offset(self) -> int:
        return self._segments.active.next_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended: as far as `read_committed` reads."""
        return max(self.producers.last_stable_offset(self.high_watermark), self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def advance_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            end_offset = self._segments.active.next_offset
            self.high_watermark = offset if offset <= end_offset else end_offset
            if offset > self.producers.first_marker:
                self.producers.high_watermark_moved(self.high_watermark)

    def segments(self) -> list[SegmentView]:
        """The last one is the active one."""
        with self.condition.watched():
            return self._segments.views()

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
        with self.condition.watched():
            return self._segments.from_offset(base_offset)[0].first_batch_timestamp_ms()

    # -- appending

    def append(self, batches: bytearray | memoryview, leader_epoch: int) -> Appended:
        """Check every batch, give it its offsets in place, and write all of them at once.

        If this raises, the log is as it was before."""
        if self.condition.is_unusable:
            self.condition.check()
        size_bytes = len(batches)
        config = self.config
        if size_bytes > config.segment_bytes:
            raise BatchLargerThanSegment(f"{size_bytes} bytes do not fit into a segment of {config.segment_bytes}")
        append_time_ms = self._clock.now_ms() if config.log_append_time else NO_TIMESTAMP
        active = self._segments.active
        base_offset = active.next_offset
        placed, earlier, sequenced = place(batches, base_offset, leader_epoch, append_time_ms)
        _, last_offset, max_timestamp_ms = placed
        if earlier:
            max_timestamp_ms = max(max_timestamp_ms, *(batch[2] for batch in earlier))
        producer = self.producers.who_goes_on_with(sequenced[0][0]) if len(sequenced) == 1 else None
        if producer is None and sequenced:
            duplicate = self._check_producers(sequenced)
            if duplicate is not None:
                if earlier:
                    raise OutOfOrderSequence("a batch that is in the log already comes together with others")
                append_time_ms = duplicate.timestamp_ms if config.log_append_time else NO_TIMESTAMP
                return Appended(duplicate.base_offset, duplicate.last_offset, append_time_ms, duplicate=True)
        try:
            # As nearly always, what can be seen at a glance is enough.
            if not (
                active.has_roomy_indexes
                and active.size_bytes + size_bytes <= config.segment_bytes
                and last_offset - active.base_offset <= INT32_MAX
                and NO_TIMESTAMP < max_timestamp_ms <= self._age.young_until_ms
            ) and self._must_roll(size_bytes, last_offset, max_timestamp_ms):
                self._roll()
                active = self._segments.active
            active.append(batches, placed, earlier)
        except OSError as error:
            self._unsynced.active = self._changed = True  # a part may have been written, and cut again
            self.condition.heard(error)
            raise
        if producer is not None:
            producer.wrote(sequenced[0][0])
        elif sequenced:
            self._apply(sequenced)
        if leader_epoch != self._epoch_file.settled_epoch:
            self._note_epoch(leader_epoch, base_offset)
        unsynced = self._unsynced
        unsynced.active = self._changed = True
        if unsynced.since_ms is None:
            unsynced.since_ms = self._clock.now_ms()
        return _new(Appended, (base_offset, last_offset, append_time_ms, False))

    def _apply(self, sequenced: Sequence[Sequenced]) -> None:
        for header, marker in sequenced:
            ended = self.producers.applied(header, marker)
            if ended is not None and ended.aborted:
                self._segments.active.aborts.note(ended.index_entry())
                self._unsynced.names = True  # it may have made the file

    def _check_producers(self, sequenced: Sequence[Sequenced]) -> Duplicate | None:
        data = []
        for header, marker in sequenced:
            if marker is not None:
                self.producers.check_marker(header, marker)
            elif not header.attributes & CONTROL:
                data.append(header)
        return self.producers.check(data) if data else None

    def reconfigure(self, config: LogConfig) -> None:
        """From the next append, roll, retention or compaction on."""
        self.config = config
        self._age.reconfigure(config)
        for segment in self._segments:
            segment.reconfigure(config.index_interval_bytes)

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty: that would reuse its base offset."""
        with self.condition.watched():
            if self._segments.active.size_bytes:
                self._roll()

    def _must_roll(self, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> bool:
        """Before these batches are appended."""
        active, config = self._segments.active, self.config
        has_room = active.has_room(size_bytes, last_offset, config.segment_bytes, config.index_bytes_max)
        return not has_room or self._age.is_too_old(active, max_timestamp_ms)

    def _roll(self) -> None:
        """Any step may fail and leave the log as it was. The old indexes are stored first: a segment that has a
        successor need not be scanned after a crash."""
        old = self._segments.active
        old.store_indexes()
        self._snapshots.store(self.producers, old.next_offset)
        new = self._segments.create(old.next_offset, self.config.index_interval_bytes)
        self._unsynced.seal(old)
        self._changed = True
        self._segments.append(new)
        self._age.begin(self.config)
        old.seal()

    def _note_epoch(self, epoch: int, base_offset: int) -> None:
        latest = self.epochs.latest
        if latest is None or epoch > latest.epoch:
            self._epoch_file.is_stored &= not self.epochs.assign(epoch, base_offset)
        if not self._epoch_file.is_stored:
            self._store_epochs()

    def _store_epochs(self) -> None:
        self._epoch_file.store()
        self._unsynced.names = True

    # -- reading

    def read(self, offset: int, bytes_max: int, end_offset: int | None = None) -> FileSlice | None:
        """Whole batches of one segment, from the one that holds `offset` (or the next, where compaction left a gap),
        up to `end_offset` (the end of the log if not given), where a batch begins.

        At least one batch, even if it is larger than `bytes_max`. None at the end."""
        if self.condition.is_unusable:
            self.condition.check()
        log_end_offset = self._segments.active.next_offset
        if not self.log_start_offset <= offset < log_end_offset:
            if offset == log_end_offset:
                return None
            raise OffsetOutOfRange(offset, self.log_start_offset, log_end_offset)
        if end_offset is None or end_offset > log_end_offset:
            end_offset = log_end_offset
        try:
            return self._segments.read(offset, bytes_max, end_offset)
        except OSError as error:
            self.condition.heard(error)
            raise

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is as late as this or later."""
        with self.condition.watched():
            return time_search.run(self.search_time(timestamp_ms))

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the latest record, the first of them if there are several."""
        with self.condition.watched():
            return time_search.run(self.search_latest())

    def search_time(self, timestamp_ms: int) -> Search[tuple[int, int] | None]:
        """As `offset_at_time`, in steps that `step` takes."""
        return time_search.first_at_time(list(self._segments), timestamp_ms, self.log_start_offset)

    def search_latest(self) -> Search[tuple[int, int] | None]:
        return time_search.latest(self._segments.from_offset(self.log_start_offset), self.log_start_offset)

    def step(self, search: Search[Any], found: tuple[int, int] | None) -> Batch | None:
        """The next step of a search, with what was found in the batch that its last one asked for (None at first).
        StopIteration has what was found in the end."""
        with self.condition.watched():
            return search.send(found)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with records in the range; a `read_committed` reader drops them."""
        with self.condition.watched():
            return aborted_in(self._segments.aborted_from(start_offset), start_offset, end_offset)

    # -- the disk

    def flush(self) -> None:
        """What was appended before this call is on the disk after it. A sync that failed is not tried again: what it
        was to keep may be gone, and a second one would say that all is well."""
        with self._flushing:
            self.condition.check()
            taken = self._unsynced.take(self._segments)
            complete = self._epoch_file.is_stored and not taken.active.aborts.are_waiting
            try:
                for segment in taken.sealed:
                    self._sync_sealed(segment)
                if taken.active_changed:
                    taken.active.sync_log()
                self._epoch_file.sync()
                if taken.names:
                    self._files.sync(self.directory)
            except OSError as error:
                if self.condition.is_closed:  # deleted meanwhile
                    return
                if error.errno in NO_DESCRIPTOR:
                    self._unsynced.put_back(taken, self._clock.now_ms())
                    raise
                self.condition.fail(error)
                raise LogOffline(f"{self.directory}: {error}") from error
            self._unsynced.synced(taken, complete=complete)
            if self._has_note and complete:
                self._files.remove(self.directory / failed_sync.NOTE_NAME)
                self._has_note = False

    def _sync_sealed(self, segment: Segment) -> None:
        try:
            segment.sync()
            self._snapshots.sync(segment.next_offset)  # taken when it was sealed
        except FileNotFoundError:
            # Else deleted or compacted meanwhile. In this order: a swap that ends has replaced the segment before.
            if not self._segments.are_swapping and segment in self._segments:
                raise

    @property
    def flush_is_due(self) -> bool:
        """`flush.messages`: whoever appended flushes before it answers."""
        return self._segments.active.next_offset - self._unsynced.flushed_offset >= self.config.flush_messages

    @property
    def unflushed_since_ms(self) -> int | None:
        """What `flush.ms` counts from."""
        return self._unsynced.since_ms

    @property
    def has_sealed_unsynced(self) -> bool:
        return bool(self._unsynced.sealed)

    @property
    def recovery_point(self) -> int:
        """Everything below it is on the disk."""
        return self._unsynced.recovery_point

    def close(self) -> None:
        """A log that was closed without an error may be opened as clean."""
        if self.condition.is_closed:
            return
        self.condition.check()
        if self._changed:
            self._segments.active.store_indexes()
            if not self._epoch_file.is_stored:
                self._epoch_file.write(durable=False)
                self._unsynced.names = True
            with_snapshot = len(self.producers) or self._snapshots.offsets()
            if with_snapshot:
                self._snapshots.store(self.producers, self.log_end_offset)
                self._unsynced.names = True
            try:
                if with_snapshot:
                    self._snapshots.sync(self.log_end_offset)
                self._segments.active.sync()
            except OSError as error:
                self.condition.heard_in_sync(error)
                raise
            self._unsynced.active = False
            self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files without a last write: they are to be deleted, or have failed."""
        self.condition.close()
        for segment in self._segments:
            segment.release()

    # -- deleting, at the front

    def move_start(self, offset: int) -> None:
        """Records below `offset` are deleted. Their segments go with `detach_deleted`, when this is on the disk."""
        self.condition.check()
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._changed = True

    def detach_deleted(self, *, stored: bool = True) -> list[int]:
        """The base offsets of segments that lie wholly below the log's start, are no longer part of it, and wait to be
        buried. The active segment is rolled if everything in it is deleted.

        Unless the start is `stored`, the names of the segments that are left say where the log begins: only one that
        begins with a segment, or has all of its records deleted, can do without, and takes no more room."""
        self.condition.check()
        if stored and self.epochs.truncate_from_start(self.log_start_offset):  # not before the start is on the disk
            self._store_epochs()
        segments = self._segments
        if segments.are_swapping:
            return []
        if not stored:
            if self.log_start_offset not in (*segments.base_offsets, segments.active.next_offset):
                return []
        elif self.log_start_offset == segments.active.next_offset:
            self.roll()
        segments.detach_below(self.log_start_offset)
        return list(segments.detached)

    @property
    def has_detached(self) -> bool:
        """Also those that could not be buried when they were first to be."""
        return bool(self._segments.detached)

    def bury(self, base_offsets: list[int], *, one_by_one: bool = False) -> Iterator[Path]:
        """Give the files of detached segments their last names. Any thread: the log may have been deleted since, and
        another one have its directory; or it may have been emptied, and begun anew with the same offsets.

        One by one, each is on the disk before the next: where only names say where the log begins, a crash must not
        leave an older segment without a newer one."""
        with self._flushing:
            if self.condition.is_unusable:
                return
            self._sync_names()  # the log begins with a name that is on the disk, or it seems to be cut
            for base_offset in base_offsets:
                if base_offset in self._segments.detached:
                    yield from swap.set_deleted(self.directory, base_offset, self._files)
                    self._snapshots.remove(base_offset)
                    if one_by_one:
                        self._sync_names()
                    self._segments.detached.remove(base_offset)

    def _sync_names(self) -> None:
        try:
            self._files.sync(self.directory)
        except OSError as error:
            if not self.condition.is_closed:
                self.condition.heard_in_sync(error)
            raise

    # -- compaction

    @property
    def shape(self) -> int:
        """Changes when segments other than the active one come or go."""
        return self._segments.shape

    @property
    def is_swapping(self) -> bool:
        return self._segments.are_swapping

    def begin_swap(self, shape: int, base_offsets: list[int]) -> bool:
        """Get ready for the files of these segments to be replaced by compacted ones. False if the log has changed
        its segments since it was looked at, and the compacted ones are worthless."""
        with self.condition.watched():
            if shape != self._segments.shape or self._segments.are_swapping:
                return False
            self._segments.pin(set(base_offsets))
        return True

    def cancel_swap(self, base_offsets: list[int]) -> None:
        """No file was replaced."""
        self._segments.unpin(set(base_offsets))

    def finish_swap(self, groups: list[list[int]], sizes: dict[str, int] | None = None) -> None:
        """The files are in place. A group is the base offsets of the old segments; the new one has the first. `sizes`
        are those of the new files, if somebody has looked already."""
        try:
            self._segments.replace(groups, sizes, self.config.index_interval_bytes)
        except Exception as error:
            self.fail_swap(error)
            raise
        self._unsynced.keep(self._segments)

    def fail_swap(self, error: Exception) -> None:
        """The files may be half replaced: only the next start can tell."""
        self.condition.fail(error)  # first: the owner may be about to change something
        self._segments.are_swapping = False

    # -- deleting, at the end

    def truncate_to(self, offset: int) -> None:
        """Records from `offset` on are gone when this returns, and stay gone. A batch that holds the offset goes
        whole."""
        self.condition.check()
        self._check_not_swapping()
        if offset >= self._segments.active.next_offset:
            return
        if offset <= self.first_base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        with self._flushing, self.condition.or_offline():
            self._segments.drop_behind(offset)
            active = self._segments.active
            active.truncate(active.position_of(offset))
            active.sync_log()
            self._ended_at(active.next_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """An empty log whose next offset is this one."""
        self.condition.check()
        self._check_not_swapping()
        with self._flushing, self.condition.or_offline():
            self._segments.drop_all()
            self._segments.remove_detached()  # what is appended now may end where one of them begins
            # What follows from the old batches goes before the new segment comes: nobody could tell it apart then.
            self._snapshots.remove_behind(-1)
            self.epochs.clear()
            self._epoch_file.write(durable=True)
            self._segments.append(self._segments.create(offset, self.config.index_interval_bytes))
            self.log_start_offset = offset
            self._ended_at(offset)

    def _ended_at(self, end_offset: int) -> None:
        """Everything that follows from the batches follows the truncation."""
        self._age.begin(self.config)
        if self.log_start_offset > end_offset:
            self.log_start_offset = end_offset
        self.high_watermark = max(min(self.high_watermark, end_offset), self.log_start_offset)
        self._unsynced.keep(self._segments)
        self._unsynced.ended_at(end_offset, self.log_start_offset)
        self._changed = True
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        self._snapshots.remove_behind(end_offset)
        self.producers = producers_at_end(self.directory, list(self._segments), self._files)
        self.producers.high_watermark_moved(self.high_watermark)
        self._epoch_file.write(durable=True)

    def _check_not_swapping(self) -> None:
        if self._segments.are_swapping:
            raise LogBusy(f"{self.directory}: compacted segments are being put in place; try again")
