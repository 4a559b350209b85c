"""Where logs live: every partition has one folder, in one of the data directories, whether or not its log is open.

The folder's name says which partition it is, and `partition.metadata` in it of which topic. Nothing that may be
somebody's data is lost for its name: a folder that belongs to no known topic is renamed and kept, one that holds no log
is left alone. Removal is a rename, on the disk before anything goes; what a crash leaves is finished at the next start.
"""

import base64
import contextlib
import logging
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from uuid import UUID

from pylog.storage.data_directory import DataDirectory, Key
from pylog.storage.errors import DamagedFile, DataDirectoryInUse, LogOffline
from pylog.storage.ports import FileSystem
from pylog.storage.segment import LOG_SUFFIX

_log = logging.getLogger(__name__)

METADATA_NAME = "partition.metadata"
_NAME_BYTES_MAX = 255

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
_TOPIC_ID = re.compile(r"^topic_id: *([A-Za-z0-9_-]{22})$", re.MULTILINE)


class Homes:
    def __init__(self, paths: Iterable[Path], files: FileSystem) -> None:
        self.directories: list[DataDirectory] = []
        self.offline: dict[Path, OSError] = {}
        self._files = files
        self._homes: dict[Key, DataDirectory] = {}
        self._counts: Counter[Path] = Counter()
        self._counting = threading.Lock()  # several partitions may be made at once
        try:
            for path in paths:
                self._add(path)
            if not self.directories:
                raise next(iter(self.offline.values()), ValueError("there is no data directory"))
            if self.offline:
                self._leave_claimless()
        except BaseException:
            for directory in self.directories:
                directory.close(clean=False)
            raise

    def __getitem__(self, key: Key) -> DataDirectory:
        return self._homes[key]

    def get(self, key: Key) -> DataDirectory | None:
        """None where the log was deleted meanwhile."""
        return self._homes.get(key)

    def partitions(self) -> list[Key]:
        return list(self._homes)

    def path(self, key: Key) -> Path:
        return self._homes[key].path / f"{key[0]}-{key[1]}"

    # -- finding

    def _add(self, path: Path) -> None:
        """A directory that cannot be read takes its own logs offline, and no others."""
        try:
            directory = DataDirectory(path, self._files)
            try:
                names = self._folders_in(path)
            except BaseException:
                directory.close(clean=False)
                raise
        except OSError as error:
            _log.error("%s is offline: %s", path, error)
            self.offline[path] = error
            return
        self.directories.append(directory)
        for name in names:
            partition = _PARTITION_DIRECTORY.fullmatch(name)
            if partition:
                key = (partition[1], int(partition[2]))
                if key in self._homes and not self._is_other_home(key, directory):
                    continue
                self._settle(key, directory)
                if not directory.clean:
                    directory.unrecovered.add(key)

    def _folders_in(self, path: Path) -> list[str]:
        """Once the deletions that were cut short are finished."""
        names = self._files.directories_in(path)
        kept = []
        for name in names:
            if _DELETED_DIRECTORY.fullmatch(name):
                self._files.remove_tree(path / name)
            else:
                kept.append(name)
        return kept

    def _is_other_home(self, key: Key, found: DataDirectory) -> bool:
        """Whether the folder that was found is the log's home, and not the one known so far. One of the two must be
        without a log: that is what a directory that failed while the log was made may have kept of it. A log that was
        being emptied is without one too, but where it was its offsets are known."""
        known = self._homes[key]
        claim, other_claim = self._claim(key, known), self._claim(key, found)
        if claim[0] and other_claim[0]:
            raise DataDirectoryInUse(f"{key[0]}-{key[1]} is both in {known.path} and in {found.path}; remove one")
        if other_claim <= claim:
            return False
        self._leave_alone(key)
        return True

    def _claim(self, key: Key, directory: DataDirectory) -> tuple[bool, bool]:
        return self._holds_log(directory.path / f"{key[0]}-{key[1]}"), directory.knows(key)

    def _leave_claimless(self) -> None:
        """A folder that holds no log may be what its directory kept when it failed, and the log be in one that is
        offline: a new log beside it would be one too many."""
        for key, home in list(self._homes.items()):
            with contextlib.suppress(OSError):  # whoever opens it will see
                if not home.knows(key) and not self._holds_log(self.path(key)):
                    self._leave_alone(key)

    def _holds_log(self, folder: Path) -> bool:
        return any(name.endswith(LOG_SUFFIX) for name in self._files.sizes_in(folder))

    def _topic_id_in(self, folder: Path) -> UUID | None:
        """None where nothing legible is: a crash can only leave that before the first append."""
        match = _TOPIC_ID.search((self._files.read(folder / METADATA_NAME) or b"").decode("utf-8", "replace"))
        return UUID(bytes=base64.urlsafe_b64decode(match[1] + "==")) if match else None

    def _settle(self, key: Key, home: DataDirectory) -> None:
        self._homes[key] = home
        self._counts[home.path] += 1

    def _leave_alone(self, key: Key) -> None:
        """A folder that is nobody's log."""
        home = self._homes.pop(key)
        home.unrecovered.discard(key)
        self._counts[home.path] -= 1

    # -- making

    def provide(self, key: Key, topic_id: UUID, *, new: bool) -> DataDirectory:
        """See that the partition has a folder, and that it names this topic. Threads may do it for several at once."""
        if not _TOPIC.fullmatch(key[0]) or key[1] < 0:
            raise ValueError(f"{key[0]!r}, {key[1]} cannot name a partition")
        found = self._topic_id_in(self.path(key)) if key in self._homes else None
        if found is not None and found != topic_id:
            if not new:
                raise DamagedFile(
                    self.path(key) / METADATA_NAME,
                    "line 2",
                    f"it names the topic {found}, and not {topic_id}; if the log is that of {key[0]}, remove this "
                    "file, else move the directory away",
                )
            self._set_aside(key)
            found = None
        if key not in self._homes:
            self._make(key, topic_id, new=new)
        elif found is None:
            self._write_topic_id(self.path(key), topic_id)
        return self._homes[key]

    def _make(self, key: Key, topic_id: UUID, *, new: bool) -> None:
        """In the directory with the fewest logs; where that fails, in the next one."""
        if self.offline and not new:
            raise LogOffline(
                f"{key[0]}-{key[1]} is in none of the directories that can be read; "
                f"offline: {', '.join(map(str, self.offline))}"
            )
        failed = None
        tried: list[DataDirectory] = []
        while (home := self._take_place(tried)) is not None:
            tried.append(home)
            path = home.path / f"{key[0]}-{key[1]}"
            try:
                home.forget({key})
                self._make_folder(path)
                self._write_topic_id(path, topic_id)
            except OSError as error:
                _log.error("%s cannot be made: %s", path, error)
                failed = error
                with self._counting:
                    self._counts[home.path] -= 1
                with contextlib.suppress(OSError):
                    self._remove_unmade(path)
            else:
                self._homes[key] = home
                return
        assert failed is not None
        raise failed

    def _take_place(self, tried: Collection[DataDirectory]) -> DataDirectory | None:
        with self._counting:
            others = [directory for directory in self.directories if directory not in tried]
            if not others:
                return None
            home = min(others, key=lambda directory: self._counts[directory.path])
            self._counts[home.path] += 1
            return home

    def _make_folder(self, path: Path) -> None:
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

    def _write_topic_id(self, folder: Path, topic_id: UUID) -> None:
        text = b"version: 0\ntopic_id: " + base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=")
        self._files.replace(folder / METADATA_NAME, text, durable=True)

    # -- removing

    def remove(self, keys: Iterable[Key]) -> None:
        """Gone with the renames. Where one fails the others go on, and then it is told."""
        failed = None
        renamed: defaultdict[DataDirectory, dict[Key, Path]] = defaultdict(dict)
        for key in keys:
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

    def sweep(self, key: Key, known: Collection[Key], deleted: Collection[UUID]) -> None:
        """Deal with a folder whose log is not open: it may be that of a deleted topic, or nobody's."""
        path = self.path(key)
        topic_id = self._topic_id_in(path)
        if topic_id in deleted:  # also where a topic of the same name came after
            self.remove([key])
        elif key not in known:
            if topic_id is not None or self._holds_log(path):
                self._set_aside(key)
            else:
                self._leave_alone(key)

    def _set_aside(self, key: Key) -> None:
        old = self.path(key)
        home = self._homes[key]
        aside = self._rename(key, "stray")
        self._files.sync(home.path)
        home.forget({key})
        _log.warning("%s belongs to no topic that is known; it is kept as %s", old, aside.name)

    def _rename(self, key: Key, why: str) -> Path:
        suffix = f"-{key[1]}.{self._files.unused_name()}-{why}"
        new = self._homes[key].path / (key[0][: _NAME_BYTES_MAX - len(suffix)] + suffix)
        self._files.rename(self.path(key), new)
        self._counts[self._homes.pop(key).path] -= 1
        return new
