"""The file system that there is. Every call of storage that touches a disk ends here.

Descriptors close when the last reference to their object goes, so a read, an fsync or a sendfile that
is under way outlives the roll, the close or the deletion of its segment.

What is in memory is asked of the kernel, by reads that may not wait (Linux has them, for most file systems).
"""

import contextlib
import errno
import fcntl
import os
import stat
import threading
from functools import partial
from pathlib import Path
from typing import ClassVar

from pylog.storage.ports import NOT_WAITING, Buffer, FileSystem, Lock, LogAppender, LogFile, WouldWait

_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)  # 0: this system has no such reads
_LOOK_BYTES = 256 * 1024  # between two looks at what is in memory: neighbours come, and go, together
_AHEAD_BYTES = 256 * 1024
# Where a file system has large folios (ext4 and XFS on recent Linux), a write takes as large a piece of free memory as
# it has bytes. On a virtual machine large ones may have been given back to the host, and cost several times the copy.
_PIECE_BYTES = 64 * 1024
_looked_at = bytearray(1)


class _Own(threading.local):
    """Of a thread."""

    scratch = memoryview(b"")


_own = _Own()


class DiskFile(LogFile):
    """Never used to append: sendfile may move its file position."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def read_at(self, position: int, length: int) -> bytes:
        if NOT_WAITING.waits:
            return os.pread(self._descriptor, length, position)
        try:
            return _read_at_once(self._descriptor, position, length)
        except BlockingIOError:
            raise WouldWait(partial(self.read_ahead, position, length)) from None

    def is_in_memory(self, position: int, length: int) -> bool:
        try:
            for place in (*range(position, position + length, _LOOK_BYTES), position + length - 1):
                os.preadv(self._descriptor, [_looked_at], place, _NO_WAIT)
        except OSError:  # it is not, or this file system cannot tell
            return False
        return bool(_NO_WAIT)

    def read_ahead(self, position: int, length: int) -> None:
        scratch = bytearray(min(length, _AHEAD_BYTES))
        end = position + length
        while position < end:
            count = os.preadv(self._descriptor, [scratch], position)
            if count == 0:
                break
            position += count
        if hasattr(os, "posix_fadvise"):  # who reads on finds that the disk has begun
            os.posix_fadvise(self._descriptor, end, length, os.POSIX_FADV_WILLNEED)

    def read_into(self, position: int, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer):
            count = os.preadv(self._descriptor, [buffer[filled:]], position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class DiskAppender(LogAppender):
    __slots__ = ("_descriptor", "_torn")

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._torn = False
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def append(self, data: Buffer, size_bytes: int) -> None:
        if self._torn:
            self._cut(size_bytes)
        try:
            # small ones, which are most, as they are: a memoryview takes its time
            first = data if len(data) <= _PIECE_BYTES else memoryview(data)[:_PIECE_BYTES]
            written = os.pwrite(self._descriptor, first, size_bytes)
            while written < len(data):  # a full disk takes a part first; only the next call says why
                piece = memoryview(data)[written : written + _PIECE_BYTES]
                written += os.pwrite(self._descriptor, piece, size_bytes + written)
        except BaseException:
            self._torn = True
            with contextlib.suppress(OSError):  # the next append tries again before it writes
                self._cut(size_bytes)
            raise

    def _cut(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)
        self._torn = False

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class DiskLock(Lock):
    """Two locks in one: `flock`, and the POSIX lock that Java's FileLock is, for Apache Kafka takes that one alone.

    The latter is the process's, and gone as soon as any descriptor of the file is closed: no other may be opened."""

    held: ClassVar[set[tuple[int, int]]] = set()  # (device, inode)

    def __init__(self, descriptor: int, file: tuple[int, int]) -> None:
        self._descriptor = descriptor
        self._file = file
        self.held.add(file)

    def release(self) -> None:
        if self._descriptor >= 0:
            self.held.discard(self._file)
            os.close(self._descriptor)
            self._descriptor = -1


class Disk(FileSystem):
    threads = 8

    def size_of(self, path: Path) -> int | None:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def modified_ms(self, path: Path) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def sizes_in(self, directory: Path) -> dict[str, int]:
        sizes = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it may go between the two looks
                    if entry.is_file():
                        sizes[entry.name] = entry.stat().st_size
        return sizes

    def directories_in(self, directory: Path) -> list[str]:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def open(self, path: Path) -> LogFile:
        return DiskFile(path)

    def read_at(self, path: Path, position: int, length: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if NOT_WAITING.waits:
                return os.pread(descriptor, length, position)
            return _read_at_once(descriptor, position, length)
        except BlockingIOError:
            raise WouldWait(partial(self.read_at, path, position, length)) from None
        finally:
            os.close(descriptor)

    def open_appender(self, path: Path) -> LogAppender:
        return DiskAppender(path)

    def create_empty(self, path: Path) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))

    def write_at(self, path: Path, position: int, data: Buffer) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, memoryview(data)[written:], position + written)
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, size_bytes: int) -> None:
        os.truncate(path, size_bytes)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def create_directory(self, path: Path) -> None:
        os.mkdir(path)

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> Lock | None:
        with contextlib.suppress(FileNotFoundError):
            if _identity(os.stat(path)) in DiskLock.held:
                return None
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return DiskLock(descriptor, _identity(os.fstat(descriptor)))
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):  # POSIX leaves the choice
                return None
            raise


def _read_at_once(descriptor: int, position: int, length: int) -> bytes:
    """BlockingIOError if it is not in memory. A part of it is none: fewer bytes mean the end of the file."""
    if length > len(_own.scratch):
        _own.scratch = memoryview(bytearray(length))
    buffer = _own.scratch[:length]
    try:
        count = os.preadv(descriptor, [buffer], position, _NO_WAIT)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return os.pread(descriptor, length, position)
    if count < length and _NO_WAIT and position + count < os.fstat(descriptor).st_size:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return bytes(buffer[:count])


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


DISK = Disk()
