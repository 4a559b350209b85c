"""Whether a log can be used: it is open, and its disk has not failed.

A failure is for good, until the log is opened anew: what a disk that has failed says later proves nothing. That there
is no room or no descriptor just now is none.
"""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pylog.storage import failed_sync
from pylog.storage.errors import LogClosed, LogOffline, StorageError
from pylog.storage.ports import FileSystem

_log = logging.getLogger(__name__)

# The disk has no room, or the process no descriptor, just now: nothing is lost, and the next try may succeed.
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}  # never said by fsync: if it is heard, nothing was synced yet


class Condition:
    __slots__ = ("_directory", "_files", "failure", "is_closed", "is_unusable")

    def __init__(self, directory: Path, files: FileSystem) -> None:
        self._directory = directory
        self._files = files
        self.failure: Exception | None = None
        self.is_closed = False
        self.is_unusable = False  # closed, or failed

    def close(self) -> None:
        self.is_closed = self.is_unusable = True

    def fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            self.is_unusable = True
            _log.error("%s is offline: %s", self._directory, error)
            if isinstance(error, OSError):
                failed_sync.leave_note(self._directory, self._files)

    def heard(self, error: OSError) -> None:
        if error.errno not in PASSING:
            self.fail(error)

    def heard_in_sync(self, error: OSError) -> None:
        """A sync that failed has lost what it was to keep."""
        if error.errno not in NO_DESCRIPTOR:
            self.fail(error)

    def check(self) -> None:
        if self.is_closed:
            raise LogClosed(f"{self._directory} is closed")
        if self.failure is not None:
            raise LogOffline(f"{self._directory} is offline: {self.failure}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A disk that cannot be read takes the log offline."""
        self.check()
        try:
            yield
        except OSError as error:
            self.heard(error)
            raise

    @contextmanager
    def or_offline(self) -> Iterator[None]:
        """A change that fails half way leaves a log of which memory and disk may think differently."""
        try:
            yield
        except (OSError, StorageError) as error:
            self.fail(error)
            raise
