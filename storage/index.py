"""A sparse index: pairs of numbers, both columns ascending, of fixed width, big-endian.

`.index` holds (offset - base, position), `.timeindex` holds (timestamp, offset - base). The `.log` file is
the truth and an index can always be built again from it, so entries carry no checksum and the newest ones
may wait in memory: they reach the file in groups, and all of them when the segment is sealed or closed.
"""

import logging
import struct
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from pylog.storage.ports import Buffer, FileSystem

_log = logging.getLogger(__name__)

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
INT32_MAX = 0x7FFFFFFF

_WAITING_BYTES_MAX = 2048


class Index:
    __slots__ = (
        "_entry",
        "_files",
        "_last",
        "_map",
        "_mapped",
        "_stored",
        "_unsynced",
        "_waiting",
        "count",
        "path",
        "surplus_bytes",
    )

    def __init__(self, path: Path, entry: struct.Struct, size_bytes: int, files: FileSystem) -> None:
        """An index whose file has `size_bytes`; what is behind its last whole entry will be overwritten."""
        self.path = path
        self._entry = entry
        self._files = files
        self._unsynced = False
        self._reset(size_bytes)

    def _reset(self, size_bytes: int) -> None:
        self.count = self._stored = size_bytes // self._entry.size
        self.surplus_bytes = size_bytes % self._entry.size
        self._waiting = bytearray()
        self._last: tuple[int, int] | None = None
        self._map: Buffer | None = None
        self._mapped = 0

    @property
    def last(self) -> tuple[int, int] | None:
        if self._last is None and self.count:
            self._last = self.stored_entries(self.count - 1, 1)[0]
        return self._last

    def append(self, first: int, second: int) -> None:
        self._waiting += self._entry.pack(first, second)
        self.count += 1
        self._last = (first, second)
        if len(self._waiting) >= _WAITING_BYTES_MAX:
            try:
                self.store()
            except OSError as error:  # they wait on: an append must not fail for its index
                _log.warning("%s: %s; the newest index entries stay in memory for now", self.path, error)

    def store(self) -> None:
        """Bring the waiting entries into the file."""
        if self._waiting:
            self._files.write_at(self.path, self._stored * self._entry.size, self._waiting)
            self._stored = self.count
            self._waiting = bytearray()
            self._unsynced = True

    def sync(self) -> None:
        if self._unsynced:
            self._unsynced = False  # first: entries may be stored meanwhile
            try:
                self._files.sync(self.path)
            except OSError:
                self._unsynced = True
                raise

    def map(self) -> None:
        """Make the stored entries readable without another look at the file's name."""
        if self._stored:
            self._mapping()

    def release(self) -> None:
        self._map = None
        self._mapped = 0

    def replace(self, entries: bytes | bytearray) -> None:
        """Start anew with these entries."""
        self._files.replace(self.path, entries, durable=False)
        self._unsynced = True
        self._reset(len(entries))

    def clear(self) -> None:
        """Start anew. A file that is empty already is left as it is: thousands are, when a broker starts."""
        if self.count or self.surplus_bytes or self._files.size_of(self.path) is None:
            self.replace(b"")
        else:
            self._reset(0)

    def stored_entries(self, number: int, count: int) -> list[tuple[int, int]]:
        """Straight from the file, for the few looks before the index is in use."""
        data = self._files.read_at(self.path, number * self._entry.size, count * self._entry.size)
        return list(self._entry.iter_unpack(data))

    def __getitem__(self, number: int) -> tuple[int, int]:
        first: int
        second: int
        if number < self._stored:
            first, second = self._entry.unpack_from(self._mapping(), number * self._entry.size)
        else:
            first, second = self._entry.unpack_from(self._waiting, (number - self._stored) * self._entry.size)
        return first, second

    def floor(self, value: int, column: int = 0) -> int:
        """The number of the last entry whose column is <= value, -1 if there is none."""
        last = self._last or self.last
        if last is None:
            return -1
        if last[column] <= value:
            return self.count - 1
        unpack, width, stored = self._entry.unpack_from, self._entry.size, self._stored
        if self._waiting and unpack(self._waiting)[column] <= value:
            waiting = self._waiting
            numbers = range(self.count - stored)
            return stored + bisect_right(numbers, value, key=lambda n: unpack(waiting, n * width)[column]) - 1
        if not stored:
            return -1
        mapping = self._mapping()
        first = unpack(mapping)[column]
        if first > value:
            return -1
        # A log grows evenly: the entry is close to where a straight line puts it.
        guess = min((self.count - 1) * (value - first) // (last[column] - first), stored - 1)
        return _floor_near(guess, lambda n: unpack(mapping, n * width)[column], stored, value)

    def _mapping(self) -> Buffer:
        """The stored entries; mapped anew only when somebody looks behind the end of the old mapping."""
        if self._map is None or self._mapped < self._stored:
            self._map = self._files.map(self.path, self._stored * self._entry.size)
            self._mapped = self._stored
        return self._map


def _floor_near(guess: int, entry: Callable[[int], int], count: int, value: int) -> int:
    """The number of the last of `count` entries that is <= value, as the first one is. A few looks around the guess
    find bounds, then a binary search the place between them; a bad guess costs a second binary search, no more."""
    step = 1
    if entry(guess) <= value:
        low, high = guess, guess + 1
        while high < count and entry(high) <= value:
            low, high, step = high, high + step, step * 2
        high = min(high, count)
    else:
        low, high = guess - 1, guess
        while low > 0 and entry(low) > value:
            low, high, step = low - step, low, step * 2
        low = max(low, 0)
    while high - low > 1:
        middle = (low + high) // 2
        if entry(middle) <= value:
            low = middle
        else:
            high = middle
    return low
