"""A sparse index: pairs of numbers, both columns ascending, of fixed width, big-endian.

`.index` holds (offset - base, position), `.timeindex` holds (timestamp, offset - base). The `.log` file is
the truth and an index can always be built again from it, so entries carry no checksum and the newest ones
may wait in memory: they reach the file in groups, and all of them when the segment is sealed or closed.
"""

import logging
import mmap
import struct
from bisect import bisect_right
from pathlib import Path

from pylog.storage import files

_log = logging.getLogger(__name__)

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
INT32_MAX = 0x7FFFFFFF

_WAITING_BYTES_MAX = 2048


class Index:
    __slots__ = ("_entry", "_last", "_map", "_mapped", "_stored", "_waiting", "count", "path", "surplus_bytes")

    def __init__(self, path: Path, entry: struct.Struct, size_bytes: int) -> None:
        """An index whose file has `size_bytes`; what is behind its last whole entry will be overwritten."""
        self.path = path
        self._entry = entry
        self._reset(size_bytes)

    def _reset(self, size_bytes: int) -> None:
        self.count = self._stored = size_bytes // self._entry.size
        self.surplus_bytes = size_bytes % self._entry.size
        self._waiting = bytearray()
        self._last: tuple[int, int] | None = None
        self._map: mmap.mmap | None = None
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
            files.write_at(self.path, self._stored * self._entry.size, self._waiting)
            self._stored = self.count
            self._waiting = bytearray()

    def replace(self, entries: bytes | bytearray) -> None:
        """Start anew with these entries."""
        files.replace(self.path, entries, durable=False)
        self._reset(len(entries))

    def stored_entries(self, number: int, count: int) -> list[tuple[int, int]]:
        """Straight from the file, for the few looks before the index is in use."""
        data = files.read_at(self.path, number * self._entry.size, count * self._entry.size)
        return list(self._entry.iter_unpack(data))

    def __getitem__(self, number: int) -> tuple[int, int]:
        first: int
        second: int
        if number < self._stored:
            first, second = self._entry.unpack_from(self._mapping(), number * self._entry.size)
        else:
            first, second = self._entry.unpack_from(self._waiting, (number - self._stored) * self._entry.size)
        return first, second

    def floor(self, value: int, column: int = 0, low: int = 0) -> int:
        """The number of the last entry, from `low` on, whose column is <= value; low - 1 if there is none."""
        last = self.last
        if last is None or low >= self.count:
            return low - 1
        if last[column] <= value:
            return self.count - 1
        unpack, width, stored = self._entry.unpack_from, self._entry.size, self._stored
        if self._waiting and unpack(self._waiting)[column] <= value:
            waiting = self._waiting
            low = max(low, stored)
            return (
                bisect_right(
                    range(self.count),
                    value,
                    low,
                    self.count,
                    key=lambda n: unpack(waiting, (n - stored) * width)[column],
                )
                - 1
            )
        if low >= stored:
            return low - 1
        mapping = self._mapping()
        return bisect_right(range(stored), value, low, stored, key=lambda n: unpack(mapping, n * width)[column]) - 1

    def _mapping(self) -> mmap.mmap:
        """The stored entries; mapped anew only when somebody looks behind the end of the old mapping."""
        if self._map is None or self._mapped < self._stored:
            self._map = files.map_for_reading(self.path, self._stored * self._entry.size)
            self._mapped = self._stored
        return self._map
