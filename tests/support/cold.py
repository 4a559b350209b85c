"""Files of which nothing is in memory, so that a read has to wait for the disk.

The kernel's own memory is of no use to a test: each look at a file makes it begin to read, and a fast disk is at times
done before the look is over. So its answers are played here."""

import errno
import itertools
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pylog.storage import disk

_PAGE = mmap.PAGESIZE
_NO_WAIT = 8


class ColdFiles:
    """Of a file that it was told to forget, only what somebody has read since who may wait is in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._in_memory: dict[tuple[int, int], set[int]] = {}
        self._pread, self._preadv = os.pread, os.preadv
        monkeypatch.setattr(disk, "_NO_WAIT", _NO_WAIT)
        monkeypatch.setattr(os, "pread", self._read)
        monkeypatch.setattr(os, "preadv", self._read_into)

    def forget(self, path: Path) -> None:
        found = path.stat()
        self._in_memory[found.st_dev, found.st_ino] = set()

    def _read(self, descriptor: int, length: int, position: int) -> bytes:
        data = self._pread(descriptor, length, position)
        self._pages(descriptor).update(_pages_of(position, len(data)))
        return data

    def _read_into(self, descriptor: int, buffers: Sequence[memoryview], position: int, flags: int = 0) -> int:
        (buffer,) = buffers
        length = max(0, min(len(buffer), os.fstat(descriptor).st_size - position))
        pages, wanted = self._pages(descriptor), _pages_of(position, length)
        if not flags & _NO_WAIT or self._is_other(descriptor):
            pages.update(wanted)
        elif length:
            there = sum(1 for _ in itertools.takewhile(pages.__contains__, wanted))
            if not there:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            length = min(length, (wanted.start + there) * _PAGE - position)
        return self._preadv(descriptor, [memoryview(buffer)[:length]], position)

    def _is_other(self, descriptor: int) -> bool:
        return _identity(descriptor) not in self._in_memory

    def _pages(self, descriptor: int) -> set[int]:
        return self._in_memory.get(_identity(descriptor), set())


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _pages_of(position: int, length: int) -> range:
    return range(position // _PAGE, -(-(position + length) // _PAGE))
