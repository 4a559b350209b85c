"""One of the directories that hold logs: its lock, its marker of a clean shutdown, its checkpoints.

The marker says that every log in the directory was closed. It goes, durably, before anything can change, and comes
back last, so that a crash at any moment leaves a directory that will be recovered. The checkpoints say, for each
log, what a crash cannot have taken (recovery point), what is deleted (log start) and what is compacted (cleaned).
"""

import contextlib
import errno
import logging
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from pylog.storage.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, OffsetCheckpoint
from pylog.storage.errors import DataDirectoryInUse, StorageError
from pylog.storage.ports import FileSystem
from pylog.storage.recovery import Trust

_log = logging.getLogger(__name__)

Key = tuple[str, int]  # topic, partition

LOCK_NAME = ".lock"
MARKER_NAME = ".kafka_cleanshutdown"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_MARKER_TEXT = b'{"version":0,"brokerEpoch":-1}'


class DataDirectory:
    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        files.make_directories(path)
        lock = files.lock(path / LOCK_NAME)
        if lock is None:
            raise DataDirectoryInUse(
                f"{path} is in use by another broker; stop that one, or give this one a data directory of its own"
            )
        self._lock = lock
        self._checkpoints = {
            name: OffsetCheckpoint(path / name, files) for name in (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)
        }
        self.unrecovered: set[Key] = set()
        self.is_full = False  # as far as the starts of logs tell
        # Held while offsets are looked up and stored: no thread may store what was true of a log that is gone.
        self.storing = threading.RLock()
        try:
            files.sync(path)  # what an earlier process made may not be on the disk yet
            with contextlib.suppress(PermissionError):  # which may not be ours to open
                files.sync(path.parent)
            self._known = {name: self._load(name) for name in self._checkpoints}
            self.clean = self._take_marker()
        except BaseException:
            lock.release()
            raise

    def _load(self, name: str) -> dict[Key, int]:
        try:
            return self._checkpoints[name].load()
        except StorageError as error:
            _log.error("%s; the logs are read from their beginnings instead", error)
            return {}

    def _take_marker(self) -> bool:
        marker = self.path / MARKER_NAME
        if self._files.size_of(marker) is None:
            return False
        self._files.remove(marker)
        self._files.sync(self.path)
        return True

    def trust_in(self, key: Key) -> Trust:
        return Trust(
            clean=key not in self.unrecovered,
            recovery_point=self._known[RECOVERY_POINTS].get(key, 0),
            log_start_offset=self._known[LOG_START_OFFSETS].get(key, 0),
            cleaned_until=self._known[CLEANER_OFFSETS].get(key, 0),
        )

    def knows(self, key: Key) -> bool:
        """Whether a checkpoint tells of it."""
        return any(key in known for known in self._known.values())

    def cleaned_until(self, key: Key) -> int:
        return self._known[CLEANER_OFFSETS].get(key, 0)

    def log_start(self, key: Key) -> int:
        """What a crash would leave of it."""
        return self._known[LOG_START_OFFSETS].get(key, 0)

    def note_cleaned(self, key: Key, offset: int) -> None:
        self._store(CLEANER_OFFSETS, {key: offset})

    def bound(self, key: Key, *, recovery_point: int, end_offset: int) -> None:
        """What is appended behind these is not on the disk, and not compacted, whatever was there."""
        if recovery_point < self._known[RECOVERY_POINTS].get(key, 0):
            self.store_recovery_points({key: recovery_point})
        if end_offset < self.cleaned_until(key):
            self.note_cleaned(key, end_offset)

    def store_recovery_points(self, offsets: Mapping[Key, int]) -> None:
        self._store(RECOVERY_POINTS, offsets)

    def store_log_starts(self, offsets: Mapping[Key, int]) -> None:
        try:
            self._store(LOG_START_OFFSETS, offsets)
        except OSError as error:
            self.is_full = error.errno in _NO_ROOM
            raise
        self.is_full = False

    def _store(self, name: str, offsets: Mapping[Key, int]) -> None:
        """Logs that nobody opened keep what is known of them."""
        with self.storing:
            new = {**self._known[name], **offsets}
            if new != self._known[name]:
                self._checkpoints[name].store(new)
                self._known[name] = new

    def forget(self, keys: Collection[Key]) -> None:
        """Nothing that is known of deleted logs may be believed of the next ones with their names."""
        self.unrecovered.difference_update(keys)
        with self.storing:
            for name, known in self._known.items():
                if not any(key in known for key in keys):
                    continue
                new = {key: offset for key, offset in known.items() if key not in keys}
                self._checkpoints[name].store(new)
                self._known[name] = new

    def close(self, *, clean: bool) -> None:
        if clean and not self.unrecovered:  # a log that nobody opened has not been recovered either
            self._files.replace(self.path / MARKER_NAME, _MARKER_TEXT, durable=True)
        self.release()

    def release(self) -> None:
        self._lock.release()
