"""Files that are not in memory."""

import os
import time
from pathlib import Path

from pylog.storage.disk import DISK

_SECONDS_MAX = 10


def made_cold(path: Path) -> bool:
    """The kernel forgets what it has of the file; False where the file system does not, or cannot tell."""
    size_bytes = path.stat().st_size
    file = DISK.open(path)
    deadline = time.monotonic() + _SECONDS_MAX
    while size_bytes and time.monotonic() < deadline:
        os.fsync(file.fileno())
        _forget(file.fileno())
        if not file.is_in_memory(size_bytes // 2, 1):
            file.read_ahead(0, 1)
            able_to_tell = file.is_in_memory(0, 1)
            _forget(file.fileno())  # the looks themselves make the kernel read ahead
            return able_to_tell
        time.sleep(0.05)  # pages that are just being written stay
    return not size_bytes


def _forget(descriptor: int) -> None:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
