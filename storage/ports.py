"""What storage asks of the world: a file system and a clock. Both are parameters, so that tests bring their own.

The rules of the file system, which decide what a crash can take:
- A write, a truncation or a new file's bytes are on the disk once `sync(file)` has returned, and not before.
- A name (created, renamed, removed) is on the disk once `sync(its directory)` has returned, and not before.
- `rename` is atomic: after a crash the name stands for the old file or for the new one, both of them whole.
- A sync that failed has lost what it was to keep. Calling it again and seeing no error proves nothing.

Reads may wait for a disk. Who must not wait reads within `NOT_WAITING`: what is not in memory then raises WouldWait,
which knows how to wait for it in another thread. Where the system cannot tell, such a read may wait all the same.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from uuid import uuid4

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def now_ms(self) -> int: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class WouldWait(Exception):
    """A read would have to wait for the disk. After `wait`, which any thread may call, it need not, for a while."""

    def __init__(self, wait: Callable[[], object]) -> None:
        super().__init__("what is to be read is not in memory")
        self.wait = wait


class _Patience(threading.local):
    """Of a thread: whether its reads may wait."""

    waits = True

    def __enter__(self) -> None:
        self.waits = False

    def __exit__(self, *error: object) -> None:
        self.waits = True

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """For the rare work that must not stop half way: its reads wait all the same."""
        waits, self.waits = self.waits, True
        try:
            yield
        finally:
            self.waits = waits


NOT_WAITING = _Patience()


class LogFile(ABC):
    """A file to read from. What was opened stays readable as long as this object is held, whatever becomes of the
    name: reads and sends that are under way outlive the roll, the compaction or the deletion of their segment."""

    path: Path

    @abstractmethod
    def fileno(self) -> int: ...

    @abstractmethod
    def read_into(self, position: int, buffer: memoryview) -> int:
        """How many bytes came; fewer than fit only at the end of the file."""

    @abstractmethod
    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer at the end of the file."""

    def is_in_memory(self, position: int, length: int) -> bool:
        """Whether these bytes can be sent without waiting for the disk; False where that is not known. It looks here
        and there, not at every byte."""
        return True

    def read_ahead(self, position: int, length: int) -> None:  # noqa: B027 (a file in memory has nothing to do)
        """Wait until these bytes are in memory, in any thread."""


class LogAppender(ABC):
    """The writing side of a file that exists already."""

    @abstractmethod
    def append(self, data: Buffer, size_bytes: int) -> None:
        """Write all of `data` behind the first `size_bytes`, or raise and leave the file as it was.

        Not the end of the file: the log says where its end is, and what an interrupted append left is overwritten."""

    @abstractmethod
    def sync(self) -> None: ...


class Lock(ABC):
    @abstractmethod
    def release(self) -> None: ...


class FileSystem(ABC):
    """The abstract methods are single steps, between any two of which the machine may stop; the others are made of
    them."""

    threads = 1  # how many may use it at once, and gain from it: disks sync many files as fast as one

    # -- looking

    @abstractmethod
    def size_of(self, path: Path) -> int | None:
        """None where there is no file."""

    @abstractmethod
    def modified_ms(self, path: Path) -> int: ...

    @abstractmethod
    def is_directory(self, path: Path) -> bool: ...

    @abstractmethod
    def sizes_in(self, directory: Path) -> dict[str, int]:
        """Name and size of every plain file."""

    @abstractmethod
    def directories_in(self, directory: Path) -> list[str]: ...

    # -- reading

    @abstractmethod
    def open(self, path: Path) -> LogFile: ...

    @abstractmethod
    def read_at(self, path: Path, position: int, length: int) -> bytes:
        """For a few bytes now and then; a file that is read often is opened."""

    def read(self, path: Path) -> bytes | None:
        """All of a small file; None where there is none."""
        size_bytes = self.size_of(path)
        return None if size_bytes is None else self.read_at(path, 0, size_bytes)

    # -- changing

    @abstractmethod
    def open_appender(self, path: Path) -> LogAppender: ...

    @abstractmethod
    def create_empty(self, path: Path) -> None:
        """A file of no bytes, also where there was one of many."""

    @abstractmethod
    def write_at(self, path: Path, position: int, data: Buffer) -> None:
        """Write all of `data` at `position` of a file that is created if need be."""

    @abstractmethod
    def truncate(self, path: Path, size_bytes: int) -> None: ...

    @abstractmethod
    def rename(self, old: Path, new: Path) -> None:
        """A file or a directory, within one parent; a file that has the new name goes."""

    @abstractmethod
    def remove(self, path: Path) -> None:
        """A file, whether or not it is there."""

    @abstractmethod
    def create_directory(self, path: Path) -> None:
        """FileExistsError where there is one."""

    @abstractmethod
    def remove_directory(self, path: Path) -> None:
        """An empty one."""

    @abstractmethod
    def sync(self, path: Path) -> None:
        """fsync of a file, or of a directory: the latter makes the names in it durable."""

    @abstractmethod
    def lock(self, path: Path) -> Lock | None:
        """Until `release` or the end of the process; None if another one holds it. The file is created if need be."""

    def unused_name(self) -> str:
        """32 hexadecimal digits that are in no name so far, whoever gave it."""
        return uuid4().hex

    def replace(self, path: Path, data: Buffer, *, durable: bool) -> None:
        """The file holds all of `data`, or what it held before; unless it is durable, a crash of the machine may leave
        a part. A new file: who has opened the old one reads on in that."""
        temporary = path.with_name(path.name + ".tmp")
        self.create_empty(temporary)
        self.write_at(temporary, 0, data)
        if durable:
            self.sync(temporary)
        self.rename(temporary, path)
        if durable:
            self.sync(path.parent)

    def make_directory(self, path: Path) -> bool:
        """Whether it is new; its name is durable then. One that was there may still have to be synced."""
        try:
            self.create_directory(path)
        except FileExistsError:
            return False
        self.sync(path.parent)
        return True

    def make_directories(self, path: Path) -> None:
        """With its parents, all of them durable."""
        if not self.is_directory(path):
            self.make_directories(path.parent)
            self.make_directory(path)

    def remove_tree(self, path: Path) -> None:
        for name in self.directories_in(path):
            self.remove_tree(path / name)
        for name in self.sizes_in(path):
            self.remove(path / name)
        self.remove_directory(path)
