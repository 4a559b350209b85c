"""Files of which nothing is in memory, so that a read has to wait for the disk."""

import ctypes
import mmap
import os
import time
from pathlib import Path

from pylog.storage.disk import DISK

_SECONDS_MAX = 10
_libc = ctypes.CDLL(None, use_errno=True)


def made_cold(path: Path) -> bool:
    """The kernel forgets what it has of the file; False where the file system does not, or cannot tell."""
    size_bytes = path.stat().st_size
    if not size_bytes:
        return True
    file = DISK.open(path)
    os.pread(file.fileno(), 1, 0)
    able_to_tell = file.is_in_memory(0, 1)
    deadline = time.monotonic() + _SECONDS_MAX
    while time.monotonic() < deadline:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if not _has_pages(path, size_bytes):
            return able_to_tell
        time.sleep(0.05)  # pages that are just being written, or read ahead, stay
    return False


def _has_pages(path: Path, size_bytes: int) -> bool:
    """Whether the page cache has any of the file. A look that reads, and be it with RWF_NOWAIT, begins to fetch it."""
    pages = (ctypes.c_ubyte * -(-size_bytes // mmap.PAGESIZE))()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_COPY) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        failed = _libc.mincore(ctypes.byref(start), ctypes.c_size_t(size_bytes), pages)
        del start  # or the mapping could not be closed
    return not failed and any(page & 1 for page in pages)
