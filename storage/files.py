"""What the log asks of the operating system, and nothing else: every call that touches a disk stands here.

Descriptors close when the last reference to their object goes, so a read, an fsync or a sendfile that
is under way outlives the roll, the close or the deletion of its segment.
"""

import mmap
import os
import shutil
from pathlib import Path

Buffer = bytes | bytearray | memoryview


class LogFile:
    """The reading side of a `.log` file. Never used to append: sendfile may move its file position."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer at the end of the file."""
        return os.pread(self._descriptor, length, position)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """How many bytes came; fewer than fit only at the end of the file."""
        filled = 0
        while filled < len(buffer):
            count = os.preadv(self._descriptor, [buffer[filled:]], position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class LogAppender:
    """The writing side of a `.log` file, which exists already."""

    __slots__ = ("_descriptor", "_torn")

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._torn = False
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def append(self, data: Buffer, size_bytes: int) -> None:
        """Write all of `data` behind the first `size_bytes`, or raise and leave the file as it was.

        Not O_APPEND: the log says where its end is, and what an interrupted append left there is overwritten."""
        if self._torn:
            self._cut(size_bytes)
        try:
            written = os.pwrite(self._descriptor, data, size_bytes)
            while written < len(data):  # a full disk takes a part first; only the next call says why
                written += os.pwrite(self._descriptor, memoryview(data)[written:], size_bytes + written)
        except BaseException:
            self._torn = True
            self._cut(size_bytes)
            raise

    def _cut(self, size_bytes: int) -> None:
        """If this fails as well, the next append tries again before it writes."""
        os.ftruncate(self._descriptor, size_bytes)
        self._torn = False

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def size_of(path: Path) -> int | None:
    """None where there is no file."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def create_empty(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))


def truncate(path: Path, size_bytes: int) -> None:
    os.truncate(path, size_bytes)


def write_at(path: Path, position: int, data: Buffer) -> None:
    """Write all of `data` at `position` of a file that is created if need be."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, memoryview(data)[written:], position + written)
    finally:
        os.close(descriptor)


def read_at(path: Path, position: int, length: int) -> bytes:
    """For a few bytes once; a file that is read often is a LogFile or mapped."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, length, position)
    finally:
        os.close(descriptor)


def map_for_reading(path: Path, size_bytes: int) -> mmap.mmap:
    """The first `size_bytes`, which must be there and stay: a mapped file is replaced, never cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return mmap.mmap(descriptor, size_bytes, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)


def replace(path: Path, data: Buffer, *, durable: bool) -> None:
    """The file holds all of `data`, or what it held before. A new inode: old mappings stay valid."""
    temporary = path.with_name(path.name + ".tmp")
    create_empty(temporary)
    write_at(temporary, 0, data)
    if durable:
        sync(temporary)
    os.replace(temporary, path)
    if durable:
        sync(path.parent)


def read_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return None


def sync(path: Path) -> None:
    """fsync of a file, or of a directory: the latter makes the names in it durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sizes_in(directory: Path) -> dict[str, int]:
    """Name and size of every plain file."""
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


def directories_in(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def make_directory(path: Path) -> bool:
    """Whether it is new; its name is durable then."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    sync(path.parent)
    return True


def make_directories(path: Path) -> None:
    """With its parents, all of them durable."""
    if not path.is_dir():
        make_directories(path.parent)
        make_directory(path)


def rename(old: Path, new: Path) -> None:
    """Durable; both names are in one directory."""
    os.rename(old, new)
    sync(new.parent)


def remove(path: Path) -> None:
    """Whether or not it was there."""
    path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    shutil.rmtree(path)
