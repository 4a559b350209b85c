"""A sparse index: pairs of numbers, both columns ascending, of fixed width, big-endian.

`.index` holds (offset - base, position), `.timeindex` holds (timestamp, offset - base). The `.log` file is
the truth and an index can always be built again from it, so entries carry no checksum and the newest ones
may wait in memory: they reach the file in groups, and all of them when the segment is sealed or closed.

The file is read by blocks, and never mapped: a bad sector under a mapping kills the process, and a mapping holds a
descriptor. The last block stays in memory, where a reader that goes on from there finds its next entries.
"""

import errno
import logging
import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from pylog.storage.errors import DamagedFile
from pylog.storage.ports import Buffer, FileSystem

_log = logging.getLogger(__name__)

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES = OFFSET_ENTRY.size, TIME_ENTRY.size
INT32_MAX = 0x7FFFFFFF

_WAITING_BYTES_MAX = 2048
_BLOCK_BYTES = 4096
_NO_BLOCK = (0, b"")


class Index:
    __slots__ = (
        "_block",
        "_entry",
        "_fields",
        "_files",
        "_first",
        "_last",
        "_pinned",
        "_renewed",
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
        self._fields = entry.format.removeprefix(">")
        self._files = files
        self._pinned = False  # the name may stand for another file
        self._unsynced = False
        self._reset(size_bytes)

    def _reset(self, size_bytes: int) -> None:
        self.count = self._stored = size_bytes // self._entry.size
        self.surplus_bytes = size_bytes % self._entry.size
        self._waiting = bytearray()
        self._renewed = False  # all that the file holds is void: `_waiting` is the index
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._block: tuple[int, bytes] = _NO_BLOCK

    @property
    def last(self) -> tuple[int, int] | None:
        if self._last is None and self.count:
            self._last = self.stored_entries(self.count - 1, 1)[0]
        return self._last

    def append(self, first: int, second: int) -> None:
        self.extend([(first, second)])

    def extend(self, entries: Sequence[tuple[int, int]]) -> None:
        """At least one."""
        waiting = self._waiting
        waiting += struct.pack(">" + self._fields * len(entries), *chain.from_iterable(entries))
        self.count += len(entries)
        self._last = entries[-1]
        if len(waiting) >= _WAITING_BYTES_MAX:
            try:
                self.store()
            except OSError as error:  # they wait on: an append must not fail for its index
                _log.warning("%s: %s; the newest index entries stay in memory for now", self.path, error)

    def store(self) -> None:
        """Bring the waiting entries into the file, if it is this index's own."""
        if self._pinned:
            return
        if self._renewed:
            self._files.replace(self.path, self._waiting, durable=False)
        elif self._waiting:
            self._files.write_at(self.path, self._stored * self._entry.size, self._waiting)
        if self._renewed or self._waiting:
            self._renewed = False
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

    def pin(self) -> None:
        """All entries into memory: until `release`, whoever has the file's name, it is neither read nor written."""
        if self._stored:
            self._block = 0, self._read(0, self._stored * self._entry.size)
        self.last  # noqa: B018 (looks at the file)
        self._pinned = True

    def release(self) -> None:
        self._pinned = False
        self._block = _NO_BLOCK

    def replace(self, entries: bytes | bytearray) -> None:
        """Start anew with these entries."""
        self._files.replace(self.path, entries, durable=False)
        self._unsynced = True
        self._reset(len(entries))

    def clear(self) -> None:
        """Start anew. A file that is empty already is left as it is: thousands are, when a broker starts."""
        if self._pinned:
            self._reset(0)
            self._renewed = True
        elif self.count or self.surplus_bytes or self._files.size_of(self.path) is None:
            self.replace(b"")
        else:
            self._reset(0)

    def stored_entries(self, number: int, count: int) -> list[tuple[int, int]]:
        """Straight from the file, for the few looks before the index is in use."""
        return list(self._entry.iter_unpack(self._read(number * self._entry.size, count * self._entry.size)))

    def _read(self, position: int, length: int) -> bytes:
        """What cannot be read is damaged, as what cannot be right is: the log can tell it again."""
        try:
            data = self._files.read_at(self.path, position, length)
        except OSError as error:
            if error.errno == errno.EIO:
                raise DamagedFile(self.path, f"byte {position}", str(error)) from error
            raise
        if len(data) < length:
            raise DamagedFile(
                self.path, f"byte {position + len(data)}", f"it has lost entries up to {position + length}"
            )
        return data

    def __getitem__(self, number: int) -> tuple[int, int]:
        first: int
        second: int
        if number < self._stored:
            start, block = self._block_with(number)
            first, second = self._entry.unpack_from(block, (number - start) * self._entry.size)
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
        if self._waiting and self._entry.unpack_from(self._waiting)[column] <= value:
            return self._stored + self._floor_in(self._waiting, value, column)
        if not self._stored:
            return -1
        if self._first is None:
            kept = self._stored * self._entry.size <= _BLOCK_BYTES or self._pinned
            self._first = self[0] if kept else self.stored_entries(0, 1)[0]
        if self._first[column] > value:
            return -1
        return self._floor_stored(value, column, self._first[column], last[column])

    def _floor_stored(self, value: int, column: int, low_value: int, high_value: int) -> int:
        """The floor among the stored entries, of which the first is <= value; the last of all entries is above it."""
        unpack, width = self._entry.unpack_from, self._entry.size
        low, high, looks = 0, self.count - 1, 0  # entry `low` is not above the value, entry `high` is
        start, block = self._block
        while True:
            if block:
                end = start + len(block) // width
                first, last = unpack(block)[column], unpack(block, len(block) - width)[column]
                if first > value:
                    high, high_value = min((high, high_value), (start, first))
                elif last > value or end == self._stored:
                    return start + self._floor_in(block, value, column)
                else:
                    low, low_value = max((low, low_value), (end - 1, last))
                if high - low <= 1:
                    return low
            # A log grows evenly: the entry is close to where a straight line puts it. Where that is not so, every
            # third look halves what is left.
            looks += 1
            if looks % 3:
                guess = low + (high - low) * (value - low_value) // (high_value - low_value)
            else:
                guess = (low + high) // 2
            start, block = self._block_with(min(max(guess, low + 1), self._stored - 1))

    def _floor_in(self, entries: Buffer, value: int, column: int) -> int:
        unpack, width = self._entry.unpack_from, self._entry.size
        return bisect_right(range(len(entries) // width), value, key=lambda n: unpack(entries, n * width)[column]) - 1

    def _block_with(self, number: int) -> tuple[int, bytes]:
        """(number of the first entry, entries) around a stored one. One value, so that threads see what fits."""
        width = self._entry.size
        start, block = kept = self._block
        if start <= number < start + len(block) // width:
            return kept
        count = _BLOCK_BYTES // width
        start = max(0, min(number - count // 2, self._stored - count))
        self._block = kept = start, self._read(start * width, min(count, self._stored - start) * width)
        return kept
