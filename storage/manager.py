"""All partition logs of a process, in one or several data directories, each of which it owns alone.

One thread (the owner: the broker's loop) reads and changes logs. What waits for a disk is split off, and says so: it
runs in one other thread (the disk's), which also opens and deletes logs, so that a log may come or go between any two
lines of the owner's. The owner's methods look a log up once, and skip one that has gone.
"""

import base64
import contextlib
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from pylog.storage import compaction, retention
from pylog.storage.cleaner_process import CleanerProcess
from pylog.storage.compaction import CleaningPlan, Dirt
from pylog.storage.compaction_job import CompactionJob, StartCleaner, plan_for
from pylog.storage.data_directory import DataDirectory, Key
from pylog.storage.disk import DISK
from pylog.storage.errors import DamagedFile, DataDirectoryInUse, LogClosed, LogOffline, StorageError
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import Clock, FileSystem, SystemClock
from pylog.storage.segment import LOG_SUFFIX

_log = logging.getLogger(__name__)

METADATA_NAME = "partition.metadata"
_NAME_BYTES_MAX = 255
COMPACTION_RETRY_MS = 60_000  # after a run that failed; the other logs come first

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
_TOPIC_ID = re.compile(r"^topic_id: *([A-Za-z0-9_-]{22})$", re.MULTILINE)


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
        self._start_cleaner = start_cleaner
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._logs: dict[Key, PartitionLog] = {}
        self._homes: dict[Key, DataDirectory] = {}  # of every log that there is, open or not
        self._counts: Counter[Path] = Counter()
        self._topic_ids: dict[Key, UUID] = {}  # of the open logs
        self._buried: list[tuple[int, Path]] = []  # when to remove which file; a heap
        self._directories: list[DataDirectory] = []
        self.uncleanable: dict[Key, Exception] = {}  # logs that compaction found damaged; until the next start
        self._put_off: dict[Key, int] = {}  # logs whose compaction failed, and when to try again
        self.offline_directories: dict[Path, OSError] = {}
        try:
            for path in directories:
                self._add(path)
            if not self._directories:
                raise next(iter(self.offline_directories.values()), ValueError("there is no data directory"))
        except BaseException:
            for directory in self._directories:
                directory.close(clean=False)
            raise

    def _add(self, path: Path) -> None:
        """A directory that cannot be read takes its own logs offline, and no others."""
        try:
            directory = DataDirectory(path, self._files)
            try:
                names = self._partitions_in(path)
            except BaseException:
                directory.close(clean=False)
                raise
        except OSError as error:
            _log.error("%s is offline: %s", path, error)
            self.offline_directories[path] = error
            return
        self._directories.append(directory)
        for name in names:
            partition = _PARTITION_DIRECTORY.fullmatch(name)
            if partition:
                key = (partition[1], int(partition[2]))
                if key in self._homes and not self._is_other_home(key, path / name):
                    continue
                self._homes[key] = directory
                self._counts[path] += 1
                if not directory.clean:
                    directory.unrecovered.add(key)

    def _is_other_home(self, key: Key, found: Path) -> bool:
        """Whether the folder that was found is the log's home, and not the one known so far. The other one must be
        without a log: that is what a directory that failed while the log was made may have kept of it."""
        known = self._path(key)
        if not self._holds_log(found):
            return False
        if self._holds_log(known):
            raise DataDirectoryInUse(f"{found.name} is both in {known.parent} and in {found.parent}; remove one")
        self._leave_alone(key)
        return True

    def _holds_log(self, directory: Path) -> bool:
        return any(name.endswith(LOG_SUFFIX) for name in self._files.sizes_in(directory))

    def _leave_alone(self, key: Key) -> None:
        """A folder that is nobody's log."""
        home = self._homes.pop(key)
        home.unrecovered.discard(key)
        self._counts[home.path] -= 1

    def _partitions_in(self, path: Path) -> list[str]:
        """Once the deletions that were cut short are finished."""
        names = self._files.directories_in(path)
        deleted = {name for name in names if _DELETED_DIRECTORY.fullmatch(name)}
        for name in deleted:
            self._files.remove_tree(path / name)
        return [name for name in names if name not in deleted]

    @property
    def directories(self) -> list[Path]:
        return [directory.path for directory in self._directories]

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
        if not _TOPIC.fullmatch(topic) or partition < 0:
            raise ValueError(f"{topic!r}, {partition} cannot name a partition")
        found = self._topic_id_in(self._path(key)) if key in self._homes else None
        if found is not None and found != topic_id:
            if not new:
                raise DamagedFile(
                    self._path(key) / METADATA_NAME,
                    "line 2",
                    f"it names the topic {found}, and not {topic_id}; if the log is that of {topic}, remove this file, "
                    "else move the directory away",
                )
            self._set_aside(key)
            found = None
        if key not in self._homes:
            self._make_home(key, topic_id, new=new)
        elif found is None:
            self._files.replace(self._path(key) / METADATA_NAME, _metadata_text(topic_id), durable=True)
        home = self._homes[key]
        path = self._path(key)
        trust = home.trust_in(key)
        log = PartitionLog(
            path,
            config or self.default_config,
            trust,
            files=self._files,
            clock=self._clock,
            open_files=self._open_files,
        )
        self._bound_checkpoints(key, log)
        home.unrecovered.discard(key)
        self._logs[key], self._topic_ids[key] = log, topic_id
        return log

    def _make_home(self, key: Key, topic_id: UUID, *, new: bool) -> None:
        """In the directory with the fewest logs; where that fails, in the next one."""
        if self.offline_directories and not new:
            raise LogOffline(
                f"{key[0]}-{key[1]} is in none of the directories that can be read; "
                f"offline: {', '.join(map(str, self.offline_directories))}"
            )
        failed = None
        for home in sorted(self._directories, key=lambda directory: self._counts[directory.path]):
            path = home.path / f"{key[0]}-{key[1]}"
            try:
                home.forget({key})
                self._make_directory(path)
                self._files.replace(path / METADATA_NAME, _metadata_text(topic_id), durable=True)
            except OSError as error:
                _log.error("%s cannot be made: %s", path, error)
                failed = error
                with contextlib.suppress(OSError):
                    self._remove_unmade(path)
            else:
                self._homes[key] = home
                self._counts[home.path] += 1
                return
        assert failed is not None
        raise failed

    def _make_directory(self, path: Path) -> None:
        """One that an earlier try left is made anew: its sync failed, and a second one would prove nothing."""
        self._remove_unmade(path)
        with contextlib.suppress(FileExistsError):  # somebody's, with something in it
            self._files.create_directory(path)
        self._files.sync(path.parent)

    def _remove_unmade(self, path: Path) -> None:
        if self._files.is_directory(path) and not self._files.directories_in(path):
            names = self._files.sizes_in(path).keys()
            if names <= {METADATA_NAME, METADATA_NAME + ".tmp"}:
                for name in names:
                    self._files.remove(path / name)
                self._files.remove_directory(path)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def items(self) -> list[tuple[Key, PartitionLog]]:
        return list(self._logs.items())

    def close(self) -> None:
        """Close all logs and leave the markers, save where a log could not be closed."""
        with self._threads() as threads:
            closed = list(threads(_close, self._logs.values()))
        unclean = {self._homes[key].path for key, whole in zip(self._logs, closed, strict=True) if not whole}
        directories, self._directories = self._directories, []
        for directory in directories:
            try:
                self._checkpoint(directory)
                directory.close(clean=directory.path not in unclean)
            except OSError as error:
                _log.error("%s could not be marked as clean: %s; the next start recovers it", directory.path, error)
                directory.release()
        self._logs.clear()

    @contextlib.contextmanager
    def _threads(self) -> Iterator[Callable[..., Iterable[bool]]]:
        """`map`, by several threads where that helps: what thousands of logs do with the disk, they do at once."""
        if self._files.threads > 1 and len(self._logs) > 1:
            with ThreadPoolExecutor(self._files.threads, "logs") as pool:
                yield pool.map
        else:
            yield map

    # -- deleting logs

    def delete(self, topic: str, *partitions: int) -> None:
        """Gone with the renames; what a crash leaves of the renamed directories is removed at the next start. Where one
        fails the others go on, and then it is told."""
        failed = None
        renamed: defaultdict[DataDirectory, dict[Key, Path]] = defaultdict(dict)
        for partition in partitions:
            key = (topic, partition)
            log = self._logs.pop(key, None)
            self.uncleanable.pop(key, None)
            self._put_off.pop(key, None)
            if log is not None:
                log.abandon()
            home = self._homes.get(key)
            try:
                if home is not None:
                    renamed[home][key] = self._rename(key, "delete")
            except OSError as error:
                failed = error
        for home, paths in renamed.items():
            try:
                self._files.sync(home.path)
                try:
                    home.forget(paths.keys())
                except OSError as error:  # the disk may be full; then it is done before there is another of the name
                    failed = error
                for path in paths.values():
                    self._files.remove_tree(path)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def sweep(self, known: Collection[Key], deleted: Collection[UUID]) -> None:
        """Deal with the partitions that nobody knows: what belongs to a topic whose deletion is on record goes, and
        every other log is set aside. If it is the record that was lost, the data is still there.

        One that cannot be dealt with stays as it is, and whoever opens it will hear why."""
        for key in list(self._homes):
            if key not in self._logs:
                try:
                    self._sweep(key, known, deleted)
                except OSError as error:
                    _log.error("%s-%d: %s", *key, error)

    def _sweep(self, key: Key, known: Collection[Key], deleted: Collection[UUID]) -> None:
        path = self._path(key)
        topic_id = self._topic_id_in(path)
        if topic_id in deleted:  # also where a topic of the same name came after
            self.delete(*key)
        elif key not in known:
            if topic_id is not None or self._holds_log(path):
                self._set_aside(key)
            else:
                self._leave_alone(key)

    def _path(self, key: Key) -> Path:
        return self._homes[key].path / f"{key[0]}-{key[1]}"

    def _set_aside(self, key: Key) -> None:
        old = self._path(key)
        home = self._homes[key]
        aside = self._rename(key, "stray")
        self._files.sync(home.path)
        home.forget({key})
        _log.warning("%s belongs to no topic that is known; it is kept as %s", old, aside.name)

    def _rename(self, key: Key, why: str) -> Path:
        suffix = f"-{key[1]}.{uuid4().hex}-{why}"
        new = self._homes[key].path / (key[0][: _NAME_BYTES_MAX - len(suffix)] + suffix)
        self._files.rename(self._path(key), new)
        self._counts[self._homes.pop(key).path] -= 1
        return new

    def _topic_id_in(self, directory: Path) -> UUID | None:
        """None where nothing legible is: a crash can only leave that before the first append."""
        match = _TOPIC_ID.search((self._files.read(directory / METADATA_NAME) or b"").decode("utf-8", "replace"))
        return UUID(bytes=base64.urlsafe_b64decode(match[1] + "==")) if match else None

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
        for directory in self._directories:
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
        for directory in self._directories:
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

    def expire(self) -> list[Key]:
        """Move the starts of logs whose records have had their time; which logs have segments below. The owner's."""
        moved = []
        now_ms = self._clock.now_ms()
        for key, log in list(self._logs.items()):  # another thread may be opening one
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
            remove_at_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
            with self._or_told(log.directory):
                for path in log.bury(base_offsets, one_by_one=one_by_one):
                    heappush(self._buried, (remove_at_ms, path))

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
        now_ms = self._clock.now_ms()
        while self._buried and self._buried[0][0] <= now_ms:
            _, path = heappop(self._buried)
            with self._or_told(path.parent):  # then the next start removes it
                self._files.remove(path)

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """All steps at once: records below `offset` are gone, and stay gone."""
        key = (topic, partition)
        self._logs[key].move_start(offset)
        self._store_starts(self._homes[key])
        self.bury(self.detach([key]))

    def retain(self) -> None:
        """All steps at once."""
        moved = self.expire()
        if moved:
            self.store_starts()
            self.bury(self.detach(moved))
        self.remove_buried()

    # -- compaction

    def next_compaction(self) -> CompactionJob | None:
        """The dirtiest of the logs that are due. The owner's; one at a time."""
        now_ms = self._clock.now_ms()
        logs = {key: log for key, log in list(self._logs.items()) if self._may_be_compacted(key, log, now_ms)}
        dirt: dict[Key, Dirt] = {}
        for key, log in logs.items():
            home = self._homes.get(key)
            if home is not None:  # else it was deleted meanwhile
                with self._or_another(key, log):
                    dirt[key] = _dirt_of(log, home.cleaned_until(key), now_ms)
        while (dirtiest := compaction.dirtiest(dirt)) is not None:
            log = logs[dirtiest]
            with self._or_another(dirtiest, log):
                return self._job_for(dirtiest, log, plan_for(log, dirt[dirtiest], now_ms, self._dedupe_buffer_bytes))
            del dirt[dirtiest]
        return None

    def _may_be_compacted(self, key: Key, log: PartitionLog, now_ms: int) -> bool:
        return (
            log.config.compact
            and log.failure is None
            and not log.is_swapping
            and key not in self.uncleanable
            and self._put_off.get(key, now_ms) <= now_ms
        )

    @contextlib.contextmanager
    def _or_another(self, key: Key, log: PartitionLog) -> Iterator[None]:
        """No log keeps the others from being compacted."""
        try:
            yield
        except (LogClosed, LogOffline):
            pass
        except StorageError as error:
            self._give_up(key, log, error)
        except OSError as error:
            self._retry_later(key, log, error)

    def _give_up(self, key: Key, log: PartitionLog, error: Exception) -> None:
        if self._logs.get(key) is log:  # else it was deleted meanwhile, and another may have its name
            _log.error("%s cannot be compacted: %s", log.directory, error)
            self.uncleanable[key] = error

    def _retry_later(self, key: Key, log: PartitionLog, error: Exception) -> None:
        if self._logs.get(key) is log:
            _log.error("%s is compacted later: %s", log.directory, error)
            self._put_off[key] = self._clock.now_ms() + COMPACTION_RETRY_MS

    def _job_for(self, key: Key, log: PartitionLog, plan: CleaningPlan) -> CompactionJob:
        def bury(path: Path) -> None:
            heappush(self._buried, (self._clock.now_ms() + log.config.file_delete_delay_ms, path))

        def cleaned(offset: int) -> None:
            home = self._homes.get(key)
            if home is not None and self._logs.get(key) is log:
                home.note_cleaned(key, offset)

        return CompactionJob(
            log,
            plan,
            self._files,
            self._start_cleaner,
            cleaned=cleaned,
            bury=bury,
            give_up=lambda error: self._give_up(key, log, error),
            put_off=lambda error: self._retry_later(key, log, error),
        )

    # -- truncation

    def truncate_to(self, topic: str, partition: int, offset: int) -> None:
        key = (topic, partition)
        self._lower_checkpoints(key, offset)
        log = self._logs[key]
        log.truncate_to(offset)
        self._bound_checkpoints(key, log)  # the end is before the offset if a batch held it
        self._homes[key].store_log_starts({key: log.log_start_offset})

    def truncate_fully_and_start_at(self, topic: str, partition: int, offset: int) -> None:
        key = (topic, partition)
        self._lower_checkpoints(key, offset)
        self._logs[key].truncate_fully_and_start_at(offset)
        self._homes[key].store_log_starts({key: offset})

    def _bound_checkpoints(self, key: Key, log: PartitionLog) -> None:
        """What is appended now is not on the disk, and not compacted, whatever was there."""
        home = self._homes[key]
        if log.recovery_point < home.trust_in(key).recovery_point:
            home.store_recovery_points({key: log.recovery_point})
        if log.log_end_offset < home.cleaned_until(key):
            home.note_cleaned(key, log.log_end_offset)

    def _lower_checkpoints(self, key: Key, offset: int) -> None:
        """Before the truncation: what is appended after it is not what the checkpoints speak of. A start that is lower
        comes after it: deleted records must not come back. The present one is needed when all segments are gone."""
        log, home = self._logs[key], self._homes[key]
        if log.log_start_offset > home.log_start(key):
            home.store_log_starts({key: log.log_start_offset})
        # As low as any crash on the way can leave the end: a log that ends below its recovery point has lost something.
        home.store_recovery_points({key: min(log.first_base_offset, offset, log.recovery_point)})
        if home.cleaned_until(key) > offset:
            home.note_cleaned(key, offset)


def _dirt_of(log: PartitionLog, cleaned_until: int, now_ms: int) -> Dirt:
    return compaction.dirt_of(
        log.segments(),
        log.config,
        now_ms,
        cleaned_until=cleaned_until,
        log_start_offset=log.log_start_offset,
        last_stable_offset=log.last_stable_offset,
        first_timestamp_ms=log.first_timestamp_ms,
    )


def _close(log: PartitionLog) -> bool:
    try:
        log.close()
    except (OSError, StorageError) as error:
        _log.error("%s could not be closed: %s; the next start recovers it", log.directory, error)
        log.abandon()
        return False
    return True


def _metadata_text(topic_id: UUID) -> bytes:
    return b"version: 0\ntopic_id: " + base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=")
