"""A segment that the cleaner writes: files with `.cleaned` behind their names, indexes by the rule of every segment.

Batches gather in a buffer and reach the file in large writes. Only those that can make an index entry are shown to
`Segment`; for its indexes that is as good as all of them.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pylog.storage.aborts import Aborts
from pylog.storage.kernels.segment_reader import address_of
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import Buffer, FileSystem
from pylog.storage.segment import ABORTED_SUFFIX, Segment
from pylog.storage.swap import CLEANED, file_of
from pylog.storage.transactions import AbortedTransaction, TransactionIndex, pack_entries

WRITE_BYTES = 4 << 20


class CleanedSegment:
    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int, files: FileSystem) -> None:
        self._files = files
        self._interval_bytes = index_interval_bytes
        self._segment = Segment(directory, base_offset, {}, index_interval_bytes, files, OpenFiles())
        self._aborted_path = file_of(directory, base_offset, ABORTED_SUFFIX + CLEANED)
        self._segment.aborts = Aborts(TransactionIndex(self._aborted_path, files))
        for part in (self._segment, self._segment.offsets, self._segment.times):
            part.path = part.path.with_name(part.path.name + CLEANED)
            files.create_empty(part.path)
        self._buffer = np.empty(WRITE_BYTES, np.uint8)
        self._used = 0
        # (position in the buffer, last offset, maximum timestamp) of the batches in it: rows of arrays, and single ones
        self._waiting: list[np.ndarray] = []
        self._singles: list[tuple[int, int, int]] = []

    @property
    def size_bytes(self) -> int:
        return self._segment.size_bytes + self._used

    @property
    def free_address(self) -> int:
        return address_of(self._buffer) + self._used

    @property
    def free_bytes(self) -> int:
        return len(self._buffer) - self._used

    @property
    def free(self) -> memoryview:
        return self._buffer.data[self._used :]

    def make_room(self, size_bytes: int) -> None:
        if self.free_bytes < size_bytes:
            self._write()
            if len(self._buffer) < size_bytes:
                self._buffer = np.empty(size_bytes, np.uint8)

    def advance(self, size_bytes: int, placed: np.ndarray) -> None:
        """So much of the free part is written. `placed`: where its batches begin in it, their last offsets and maximum
        timestamps, as rows."""
        self._flatten()
        placed[:, 0] += self._used
        self._waiting.append(placed)
        self._used += size_bytes

    def append(self, batch: Buffer, last_offset: int, max_timestamp_ms: int) -> None:
        self.make_room(len(batch))
        self.free[: len(batch)] = batch
        self._singles.append((self._used, last_offset, max_timestamp_ms))
        self._used += len(batch)

    def _flatten(self) -> None:
        if self._singles:
            self._waiting.append(np.array(self._singles, np.int64))
            self._singles = []

    def _write(self) -> None:
        self._flatten()
        if self._used:
            placed = np.concatenate(self._waiting)
            last = self._segment.offsets.last
            indexed_position = 0 if last is None else last[1]
            rows = _worth_noting(placed, indexed_position - self._segment.size_bytes, self._interval_bytes)
            *earlier, last_placed = placed[rows].tolist()
            self._segment.append(self._buffer.data[: self._used], last_placed, earlier)
            self._used = 0
            self._waiting = []
        if len(self._buffer) > WRITE_BYTES:
            self._buffer = np.empty(WRITE_BYTES, np.uint8)

    def finish(self, aborted: Iterable[AbortedTransaction]) -> None:
        """All of it on the disk; the names are the caller's to sync."""
        self._write()
        self._segment.store_indexes()
        self._segment.sync()
        self._segment.release()
        if entries := pack_entries(aborted):
            self._files.write_at(self._aborted_path, 0, entries)
            self._files.sync(self._aborted_path)


def _worth_noting(placed: np.ndarray, indexed_position: int, interval_bytes: int) -> list[int]:
    """The rows that make index entries, and those whose timestamps these need.

    An entry is made by the first batch more than the interval behind the last one's; in between, only the first of
    the latest timestamps can matter."""
    positions, timestamps = placed[:, 0], placed[:, 2]
    rows: list[int] = []
    start = 0
    while start < len(placed):
        entry = int(positions.searchsorted(indexed_position + interval_bytes, "right"))
        if entry > start:
            rows.append(start + int(timestamps[start:entry].argmax()))
        if entry == len(placed):
            break
        rows.append(entry)
        indexed_position = int(positions[entry])
        start = entry + 1
    return rows
