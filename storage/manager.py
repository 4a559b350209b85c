"""All partition logs under one data directory, which one process owns at a time.

The clean-shutdown marker says that every log in the directory was closed. It goes, durably, before anything can
change, and comes back last, so that a crash at any moment leaves a directory that will be recovered.
"""

import base64
import fcntl
import logging
import os
import re
from collections.abc import Collection
from pathlib import Path
from uuid import UUID, uuid4

from pylog.storage import files
from pylog.storage.errors import DataDirectoryInUse
from pylog.storage.log import LogConfig, PartitionLog

_log = logging.getLogger(__name__)

LOCK_NAME = ".lock"
MARKER_NAME = ".kafka_cleanshutdown"
METADATA_NAME = "partition.metadata"
_MARKER_TEXT = b'{"version":0,"brokerEpoch":-1}'
_NAME_BYTES_MAX = 255

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
_TOPIC_ID = re.compile(r"^topic_id: *([A-Za-z0-9_-]{22})$", re.MULTILINE)


class LogManager:
    def __init__(self, directory: Path, default_config: LogConfig) -> None:
        self.directory = directory
        self.default_config = default_config
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._topic_ids: dict[tuple[str, int], UUID] = {}  # of the open logs
        self._unrecovered: set[tuple[str, int]] = set()
        files.make_directories(directory)
        self._lock: int | None = _lock(directory)
        try:
            self.clean = self._take_marker()
            self._look_around()
        except BaseException:
            self._unlock()
            raise

    def _take_marker(self) -> bool:
        marker = self.directory / MARKER_NAME
        if files.size_of(marker) is None:
            return False
        files.remove(marker)
        files.sync(self.directory)
        return True

    def _look_around(self) -> None:
        """Finish deletions that were cut short, and note what has to be recovered."""
        for name in files.directories_in(self.directory):
            partition = _PARTITION_DIRECTORY.fullmatch(name)
            if _DELETED_DIRECTORY.fullmatch(name):
                files.remove_tree(self.directory / name)
            elif partition and not self.clean:
                self._unrecovered.add((partition[1], int(partition[2])))

    def open(self, topic: str, partition: int, topic_id: UUID, config: LogConfig | None = None) -> PartitionLog:
        """The partition's log, new if there is none; what another topic of the same name left is set aside."""
        key = (topic, partition)
        if key in self._logs:
            if self._topic_ids[key] != topic_id:
                raise ValueError(f"{topic}-{partition} is open for the topic {self._topic_ids[key]}; delete it first")
            return self._logs[key]
        if not _TOPIC.fullmatch(topic) or partition < 0:
            raise ValueError(f"{topic!r}, {partition} cannot name a partition")
        directory = self._path(key)
        if not files.make_directory(directory):
            found = _topic_id_in(directory)
            if found is not None and found != topic_id:
                self._set_aside(key)
                files.make_directory(directory)
        if _topic_id_in(directory) is None:
            files.replace(directory / METADATA_NAME, _metadata_text(topic_id), durable=True)
        log = PartitionLog.open(directory, config or self.default_config, clean=key not in self._unrecovered)
        self._unrecovered.discard(key)
        self._logs[key], self._topic_ids[key] = log, topic_id
        return log

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def delete(self, topic: str, partition: int) -> None:
        """Gone with the rename; what a crash leaves of the renamed directory is removed at the next start."""
        key = (topic, partition)
        log = self._logs.pop(key, None)
        if log is not None:
            log.abandon()
        self._unrecovered.discard(key)
        if self._path(key).is_dir():
            files.remove_tree(self._rename(key, "delete"))

    def sweep(self, known: Collection[tuple[str, int]], deleted: Collection[UUID]) -> None:
        """Deal with the partitions that nobody knows: what belongs to a topic whose deletion is on record goes, and
        every other log is set aside. If it is the record that was lost, the data is still there."""
        for name in files.directories_in(self.directory):
            match = _PARTITION_DIRECTORY.fullmatch(name)
            key = (match[1], int(match[2])) if match else None
            if key is None or key in self._logs:
                continue
            topic_id = _topic_id_in(self.directory / name)
            if topic_id in deleted:  # also where a topic of the same name came after
                self.delete(*key)
            elif key not in known:
                if topic_id is not None or any(file.endswith(".log") for file in files.sizes_in(self.directory / name)):
                    self._set_aside(key)
                self._unrecovered.discard(key)  # a folder that is nobody's log is left alone

    def close(self) -> None:
        """Close all logs and leave the marker, unless one of them could not be closed."""
        if self._lock is None:
            return
        clean = not self._unrecovered  # a log that nobody opened has not been recovered either
        for log in self._logs.values():
            try:
                log.close()
            except OSError as error:
                _log.error("%s could not be closed: %s; the next start recovers it", log.directory, error)
                log.abandon()
                clean = False
        self._logs.clear()
        try:
            if clean:
                files.replace(self.directory / MARKER_NAME, _MARKER_TEXT, durable=True)
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _path(self, key: tuple[str, int]) -> Path:
        return self.directory / f"{key[0]}-{key[1]}"

    def _set_aside(self, key: tuple[str, int]) -> None:
        aside = self._rename(key, "stray")
        _log.warning("%s belongs to no topic that is known; it is kept as %s", self._path(key), aside.name)

    def _rename(self, key: tuple[str, int], why: str) -> Path:
        suffix = f"-{key[1]}.{uuid4().hex}-{why}"
        new = self.directory / (key[0][: _NAME_BYTES_MAX - len(suffix)] + suffix)
        files.rename(self._path(key), new)
        return new


def _lock(directory: Path) -> int:
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataDirectoryInUse(
            f"{directory} is in use by another broker; stop that one, or give this one a data directory of its own"
        ) from None
    return descriptor


def _metadata_text(topic_id: UUID) -> bytes:
    return b"version: 0\ntopic_id: " + base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=")


def _topic_id_in(directory: Path) -> UUID | None:
    """None where nothing legible is: a crash can only leave that before the first append."""
    match = _TOPIC_ID.search(files.read_text(directory / METADATA_NAME) or "")
    return UUID(bytes=base64.urlsafe_b64decode(match[1] + "==")) if match else None
