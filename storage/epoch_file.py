"""The checkpoint of a log's leader epochs: what the log knows of them, or older, and then it is known to be.

It may be late, for behind the recovery point the batches tell; so the recovery point waits for it. Only the owner's
thread stores it, so that no two write at once. Whoever stores it also sees to its name.
"""

import logging
from pathlib import Path

from pylog.storage.epochs import FILE_NAME, LeaderEpochs
from pylog.storage.ports import FileSystem

_log = logging.getLogger(__name__)


class EpochFile:
    __slots__ = ("_epochs", "_files", "_is_synced", "_path", "is_stored", "settled_epoch")

    def __init__(self, directory: Path, epochs: LeaderEpochs, files: FileSystem, *, is_stored: bool) -> None:
        self._path = directory / FILE_NAME
        self._epochs = epochs
        self._files = files
        self.is_stored = is_stored
        self._is_synced = is_stored
        self.settled_epoch: int | None = None  # the latest one, if the file has it: batches of it are no news
        if is_stored:
            self._settle()

    def store(self) -> None:
        """If this fails the next append tries again."""
        self.is_stored = False
        self.settled_epoch = None
        try:
            self.write(durable=False)
        except OSError as error:
            _log.warning("%s: %s; it is stored later", self._path, error)

    def write(self, *, durable: bool) -> None:
        self._files.replace(self._path, self._epochs.encode(), durable=durable)
        self._is_synced = durable
        self.is_stored = True
        self._settle()

    def _settle(self) -> None:
        latest = self._epochs.latest
        self.settled_epoch = None if latest is None else latest.epoch

    def sync(self) -> None:
        """Any thread."""
        if not self._is_synced:
            self._is_synced = True  # first: it may be stored anew meanwhile
            try:
                self._files.sync(self._path)
            except OSError:
                self._is_synced = False
                raise
