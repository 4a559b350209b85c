"""All partition logs of a process, in one or several data directories, each of which it owns alone.

One thread (the owner: the broker's loop) reads and changes logs. What waits for a disk is split off, and says so: it
runs in one other thread (the disk's), which also opens and deletes logs, so that a log may come or go between any two
lines of the owner's. The owner's methods look a log up once, and skip one that has gone. Logs are flushed by further
threads, which the log itself keeps apart from what may not happen meanwhile.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from pylog.storage import retention
from pylog.storage.cleaner_process import CleanerProcess
from pylog.storage.compaction_job import CompactionJob, StartCleaner
from pylog.storage.compaction_schedule import COMPACTION_RETRY_MS, CompactionSchedule
from pylog.storage.data_directory import DataDirectory, Key
from pylog.storage.disk import DISK
from pylog.storage.errors import LogClosed, StorageError
from pylog.storage.graveyard import Graveyard
from pylog.storage.homes import METADATA_NAME, Homes
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import Clock, FileSystem, SystemClock

__all__ = ["COMPACTION_RETRY_MS", "METADATA_NAME", "Doomed", "LogManager", "Wanted"]

_log = logging.getLogger(__name__)


class Wanted(NamedTuple):
    """A log that is to be opened."""

    key: Key
    topic_id: UUID
    config: LogConfig


class Doomed(NamedTuple):
    """Segments that are no longer part of their log, and whose files can go."""

    log: PartitionLog
    base_offsets: list[int]
    one_by_one: bool = False  # the log's start is not on the disk


class LogManager:
    def __init__(
        self,
        directories: Sequence[Path],
        default_config: LogConfig,
        *,
        files: FileSystem = DISK,
        clock: Clock | None = None,
        open_files_max: int = 1 << 30,
        start_cleaner: StartCleaner = CleanerProcess,
        dedupe_buffer_bytes: int = 128 << 20,
    ) -> None:
        """`open_files_max` bounds the segments that are open at once; each has two descriptors at most.
        `start_cleaner` begins a run of the cleaner, with so much memory for keys."""
        self.default_config = default_config
        self._files = files
        self._clock = clock or SystemClock()
        self._open_files = OpenFiles(open_files_max)
        self._logs: dict[Key, PartitionLog] = {}
        self._topic_ids: dict[Key, UUID] = {}  # of the open logs
        self._homes = Homes(directories, files)
        self._graveyard = Graveyard(self._clock)
        self._compactions = CompactionSchedule(
            self._logs, self._homes, self._graveyard, start_cleaner, dedupe_buffer_bytes, files, self._clock
        )
        self.offline_directories = self._homes.offline
        self.uncleanable = self._compactions.uncleanable

    @property
    def directories(self) -> list[Path]:
        return [directory.path for directory in self._homes.directories]

    # -- opening and closing

    def open(
        self, topic: str, partition: int, topic_id: UUID, config: LogConfig | None = None, *, new: bool = False
    ) -> PartitionLog:
        """The partition's log, new if there is none.

        Unless it is said to be new, a log is not created while a directory is offline (it may be there), and one that
        names another topic is not touched: `sweep` has dealt with those of deleted topics, so the name is damaged.
        Where it is new, such a log cannot be its own, and is set aside."""
        key = (topic, partition)
        if key in self._logs:
            if self._topic_ids[key] != topic_id:
                raise ValueError(f"{topic}-{partition} is open for the topic {self._topic_ids[key]}; delete it first")
            return self._logs[key]
        home = self._homes.provide(key, topic_id, new=new)
        log = PartitionLog(
            self._homes.path(key),
            config or self.default_config,
            home.trust_in(key),
            files=self._files,
            clock=self._clock,
            open_files=self._open_files,
        )
        home.bound(key, recovery_point=log.recovery_point, end_offset=log.log_end_offset)
        home.unrecovered.discard(key)
        self._logs[key], self._topic_ids[key] = log, topic_id
        return log

    def open_all(self, wanted: Sequence[Wanted], *, new: bool) -> list[PartitionLog | Exception]:
        """The logs, or why one cannot be opened: several at once, since each waits for the disk."""
        unique = {one.key: one for one in wanted}

        def open_or_tell(one: Wanted) -> PartitionLog | Exception:
            try:
                return self.open(*one.key, one.topic_id, one.config, new=new)
            except (StorageError, OSError) as error:
                return error

        with self._threads(len(unique)) as threads:
            opened = dict(zip(unique, threads(open_or_tell, unique.values()), strict=True))
        return [opened[one.key] for one in wanted]

    @property
    def has_unrecovered(self) -> bool:
        """Whether there are logs that were not closed, and not opened since: their ends may be lost."""
        return any(directory.unrecovered for directory in self._homes.directories)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    @property
    def count(self) -> int:
        return len(self._logs)

    def items(self) -> list[tuple[Key, PartitionLog]]:
        return list(self._logs.items())

    def close(self) -> None:
        """Close all logs and leave the markers, save where a log could not be closed."""
        with self._threads(len(self._logs)) as threads:
            closed = list(threads(_close, self._logs.values()))
        unclean = {self._homes[key].path for key, whole in zip(self._logs, closed, strict=True) if not whole}
        directories, self._homes.directories = self._homes.directories, []
        for directory in directories:
            try:
                self._checkpoint(directory)
                directory.close(clean=directory.path not in unclean)
            except OSError as error:
                _log.error("%s could not be marked as clean: %s; the next start recovers it", directory.path, error)
                directory.release()
        self._logs.clear()

    @contextlib.contextmanager
    def _threads(self, log_count: int) -> Iterator[Callable[..., Iterable[Any]]]:
        """`map`, by several threads where that helps: what thousands of logs do with the disk, they do at once."""
        if self._files.threads > 1 and log_count > 1:
            with ThreadPoolExecutor(self._files.threads, "logs") as pool:
                yield pool.map
        else:
            yield map

    # -- deleting logs

    def delete(self, topic: str, *partitions: int) -> None:
        self.delete_all([(topic, partition) for partition in partitions])

    def delete_all(self, keys: Collection[Key]) -> None:
        """Gone with the renames; what a crash leaves of the renamed directories is removed at the next start. Where one
        fails the others go on, and then it is told."""
        for key in keys:
            log = self._logs.pop(key, None)
            self._topic_ids.pop(key, None)
            self._compactions.forget(key)
            if log is not None:
                log.abandon()
        self._homes.remove(keys)

    def sweep(self, known: Collection[Key], deleted: Collection[UUID]) -> None:
        """Deal with the partitions that nobody knows: what belongs to a topic whose deletion is on record goes, and
        every other log is set aside. If it is the record that was lost, the data is still there.

        One that cannot be dealt with stays as it is, and whoever opens it will hear why."""
        for key in self._homes.partitions():
            if key not in self._logs:
                try:
                    self._homes.sweep(key, known, deleted)
                except OSError as error:
                    _log.error("%s-%d: %s", *key, error)

    # -- the disk; any thread

    def logs_to_flush(self) -> list[PartitionLog]:
        """`flush.ms` has passed, or a segment was sealed: sealed ones are soon on the disk, whatever the settings."""
        now_ms = self._clock.now_ms()
        return [
            log
            for log in list(self._logs.values())
            if log.failure is None
            and (
                log.has_sealed_unsynced
                or (log.unflushed_since_ms is not None and now_ms - log.unflushed_since_ms >= log.config.flush_ms)
            )
        ]

    def checkpoint(self) -> None:
        """What a crash will not have to look at again. Where one directory fails the others go on, and then it is
        told."""
        failed = None
        for directory in self._homes.directories:
            try:
                self._checkpoint(directory)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def _checkpoint(self, directory: DataDirectory) -> None:
        with directory.storing:
            self._store_starts(directory)
            directory.store_recovery_points(self._of(directory, lambda log: log.recovery_point))

    def store_starts(self) -> None:
        """Where this fails nothing will be detached, save where the disk is full: old segments going is what heals it.
        There the names say where logs begin, and this is done when there is room again."""
        for directory in self._homes.directories:
            with self._or_told(directory.path):
                self._store_starts(directory)

    def _store_starts(self, directory: DataDirectory) -> None:
        with directory.storing:
            directory.store_log_starts(self._of(directory, lambda log: log.log_start_offset))

    def _of(self, directory: DataDirectory, offset: Callable[[PartitionLog], int]) -> dict[Key, int]:
        """Of a log that failed, half way through a truncation maybe, the checkpoints know better."""
        logs = [(key, log) for key, log in list(self._logs.items()) if log.failure is None]
        return {key: offset(log) for key, log in logs if self._homes.get(key) is directory and offset(log) > 0}

    # -- deleting records: expire or delete_records, then store_starts, then detach, then bury; after a while, remove.
    # An error in one log is told, and the others go on.

    def logs_to_look_at(self) -> list[PartitionLog]:
        """Those of whose times `expire` and `next_compaction` would have to read something. Any thread: the system is
        made to read it."""
        logs = [log for log in list(self._logs.values()) if log.failure is None and not log.has_looked_at_times]
        for log in logs:
            with contextlib.suppress(OSError):  # the owner will see
                log.read_ahead_times()
        return logs

    def look_at_times(self, log: PartitionLog) -> None:
        """The owner's. What is read is kept."""
        with self._or_told(log.directory):
            log.segments()

    def expire(self, some: Iterable[tuple[Key, PartitionLog]] | None = None) -> list[Key]:
        """Move the starts of logs whose records have had their time; which logs have segments below. Of `some` logs,
        for who cannot stay with thousands of them, or of all. The owner's."""
        moved = []
        now_ms = self._clock.now_ms()
        for key, log in self.items() if some is None else some:
            if log.failure is None and not log.is_swapping:
                with self._or_told(log.directory):
                    if self._expire(log, now_ms):
                        moved.append(key)
        return moved

    def _expire(self, log: PartitionLog, now_ms: int) -> bool:
        log.producers.expire(now_ms, log.config.producer_expiration_ms)
        segments = log.segments()
        start = retention.start_after_retention(segments, log.high_watermark, now_ms, log.config)
        if start is not None and start > log.log_start_offset:
            log.move_start(start)
            return True
        # left by a stop, or an error
        return log.has_detached or (len(segments) > 1 and segments[1].base_offset <= log.log_start_offset)

    def detach(self, keys: Iterable[Key]) -> list[Doomed]:
        """Take the segments that lie below the starts out of their logs. The owner's, after `store_starts`."""
        doomed = []
        for key in keys:
            log = self._logs.get(key)
            home = self._homes.get(key)
            if log is None or home is None:  # deleted meanwhile
                continue
            stored = home.log_start(key) >= log.log_start_offset
            if log.failure is None and (stored or home.is_full):
                with self._or_told(log.directory):
                    base_offsets = log.detach_deleted(stored=stored)
                    if base_offsets:
                        doomed.append(Doomed(log, base_offsets, one_by_one=not stored))
        return doomed

    def bury(self, doomed: Iterable[Doomed]) -> None:
        """Any thread. Files keep their bytes for a while: somebody may be about to open them."""
        for log, base_offsets, one_by_one in doomed:
            with self._or_told(log.directory):
                for path in log.bury(base_offsets, one_by_one=one_by_one):
                    self._graveyard.bury(path, log.config.file_delete_delay_ms)

    @contextlib.contextmanager
    def _or_told(self, directory: Path) -> Iterator[None]:
        try:
            yield
        except LogClosed:
            pass  # deleted meanwhile
        except (OSError, StorageError) as error:
            if self._files.is_directory(directory):
                _log.error("%s: old segments stay: %s", directory, error)

    def remove_buried(self) -> None:
        """Any thread. Those whose time has come."""
        for path in self._graveyard.due():
            with self._or_told(path.parent):  # then the next start removes it
                self._files.remove(path)

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """All steps at once: records below `offset` are gone, and stay gone."""
        key = (topic, partition)
        self._logs[key].move_start(offset)
        self._store_starts(self._homes[key])
        self.bury(self.detach([key]))

    def has_stored_start(self, topic: str, partition: int) -> bool:
        """Whether a crash would leave the log's start where it is now."""
        log, home = self._logs.get((topic, partition)), self._homes.get((topic, partition))
        return log is not None and home is not None and home.log_start((topic, partition)) >= log.log_start_offset

    def retain(self) -> None:
        """All steps at once."""
        moved = self.expire()
        if moved:
            self.store_starts()
            self.bury(self.detach(moved))
        self.remove_buried()

    # -- compaction

    @property
    def dedupe_buffer_bytes(self) -> int:
        """The memory for keys of the next run."""
        return self._compactions.dedupe_buffer_bytes

    @dedupe_buffer_bytes.setter
    def dedupe_buffer_bytes(self, size_bytes: int) -> None:
        self._compactions.give_memory(size_bytes)

    def next_compaction(self) -> CompactionJob | None:
        """The dirtiest of the logs that are due. The owner's; one at a time."""
        return self._compactions.next()

    # -- truncation

    def truncate_to(self, topic: str, partition: int, offset: int) -> None:
        key = (topic, partition)
        log, home = self._logs[key], self._homes[key]
        with home.storing:  # until the log knows, a checkpoint would bring back what was lowered
            self._lower_checkpoints(key, log, offset)
            log.truncate_to(offset)
            # the end is before the offset if a batch held it
            home.bound(key, recovery_point=log.recovery_point, end_offset=log.log_end_offset)
            home.store_log_starts({key: log.log_start_offset})

    def truncate_fully_and_start_at(self, topic: str, partition: int, offset: int) -> None:
        key = (topic, partition)
        log, home = self._logs[key], self._homes[key]
        with home.storing:
            self._lower_checkpoints(key, log, offset)
            log.truncate_fully_and_start_at(offset)
            home.store_log_starts({key: offset})

    def _lower_checkpoints(self, key: Key, log: PartitionLog, offset: int) -> None:
        """Before the truncation: what is appended after it is not what the checkpoints speak of. A start that is lower
        comes after it: deleted records must not come back. The present one is needed when all segments are gone."""
        home = self._homes[key]
        if log.log_start_offset > home.log_start(key):
            home.store_log_starts({key: log.log_start_offset})
        # As low as any crash on the way can leave the end: a log that ends below its recovery point has lost something.
        home.bound(key, recovery_point=min(log.first_base_offset, offset, log.recovery_point), end_offset=offset)


def _close(log: PartitionLog) -> bool:
    try:
        log.close()
    except (OSError, StorageError) as error:
        _log.error("%s could not be closed: %s; the next start recovers it", log.directory, error)
        log.abandon()
        return False
    return True
