"""The segments of one log, in the order of their base offsets; the last one is the active one.

Memory and disk change in an order that leaves no hole after a crash: a new segment comes behind the others; at the
front segments leave the list first, and their files when the log's start is on the disk; at the end the newest goes
first. Compacted segments take the place of others while nobody reads by name (see `swap`).
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pylog.storage import swap
from pylog.storage.batch import HEADER_BYTES, NO_TIMESTAMP
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import FileSystem, LogFile
from pylog.storage.segment import Segment
from pylog.storage.transactions import AbortedTransaction
from pylog.storage.views import SegmentView


class FileSlice(NamedTuple):
    """Bytes to send. They stay readable as long as `file` is held, whatever happens to the log."""

    file: LogFile
    position: int
    length: int
    goes_on: bool = False  # there is more to read behind it


class Segments:
    __slots__ = (
        "_directory",
        "_files",
        "_open_files",
        "_segments",
        "active",
        "are_swapping",
        "base_offsets",
        "detached",
        "shape",
    )

    def __init__(self, directory: Path, segments: list[Segment], files: FileSystem, open_files: OpenFiles) -> None:
        self._directory = directory
        self._files = files
        self._open_files = open_files
        self._segments = segments
        self.base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.shape = 0  # changes when segments other than the active one come or go
        self.are_swapping = False
        self.detached: list[int] = []  # base offsets of segments that wait to be buried

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    def from_offset(self, offset: int) -> list[Segment]:
        """The one that holds the offset, and all behind it."""
        return self._segments[max(bisect_right(self.base_offsets, offset) - 1, 0) :]

    def views(self) -> list[SegmentView]:
        return [
            SegmentView(
                segment.base_offset,
                segment.next_offset,
                segment.size_bytes,
                segment.latest_timestamp_ms
                if segment.latest_timestamp_ms != NO_TIMESTAMP
                else self._files.modified_ms(segment.path),
            )
            for segment in self._segments
        ]

    # -- reading

    def read(self, offset: int, bytes_max: int, end_offset: int) -> FileSlice | None:
        """What would be nothing but the empty batch that compaction leaves at the end of a segment goes on behind it:
        some readers take an answer without records for a sign that they asked for too little."""
        segments = self._segments
        first = len(segments) - 1
        if offset < self.active.base_offset:
            first = bisect_right(self.base_offsets, offset) - 1
        passed: Segment | None = None
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset >= end_offset:
                break
            if segment.size_bytes == HEADER_BYTES and segment.next_offset <= end_offset:
                passed = segment  # without a look into it: there may be thousands
                continue
            position = segment.position_of(offset)
            end = segment.size_bytes
            if segment.next_offset > end_offset:
                end = segment.position_of(end_offset)
            if position < end:
                length = min(segment.end_of_read(position, bytes_max), end) - position
                if length > HEADER_BYTES or position + length < segment.size_bytes:
                    goes_on = position + length < end or segment.next_offset < end_offset
                    return FileSlice(segment.file, position, length, goes_on)
                passed = segment
        if passed is None:
            return None
        position = passed.position_of(offset)  # nothing else is there, and the reader has to get to the end
        return FileSlice(passed.file, position, HEADER_BYTES) if position < passed.size_bytes else None

    def aborted_from(self, offset: int) -> Iterator[AbortedTransaction]:
        for segment in self.from_offset(offset):
            yield from segment.aborts.entries()

    # -- a new one

    def create(self, base_offset: int, index_interval_bytes: int) -> Segment:
        """Its files. It is none of the log's before `append`."""
        return Segment.create(self._directory, base_offset, index_interval_bytes, self._files, self._open_files)

    def append(self, new: Segment) -> None:
        self._segments.append(new)
        self.base_offsets.append(new.base_offset)
        self.active = new

    # -- at the front

    def detach_below(self, offset: int) -> None:
        """Those that lie wholly below it, save the active one, wait to be buried."""
        count = bisect_right(self.base_offsets, offset) - 1
        doomed = self._segments[:count]
        if doomed:
            self.shape += 1
            del self._segments[:count], self.base_offsets[:count]
        for segment in doomed:
            segment.release()
        self.detached += [segment.base_offset for segment in doomed]

    # -- compacted ones

    def pin(self, base_offsets: Collection[int]) -> None:
        """Their files are about to be replaced. If this fails all is as it was before."""
        try:
            for segment in self._segments:
                if segment.base_offset in base_offsets:
                    segment.pin()
        except BaseException:
            self._release(base_offsets)
            raise
        self.are_swapping = True

    def unpin(self, base_offsets: Collection[int]) -> None:
        """None was replaced."""
        self._release(base_offsets)
        self.are_swapping = False

    def _release(self, base_offsets: Collection[int]) -> None:
        for segment in self._segments:
            if segment.base_offset in base_offsets:
                segment.release()

    def replace(self, groups: list[list[int]], sizes: dict[str, int] | None, index_interval_bytes: int) -> None:
        """The files are in place. A group is the base offsets of the old segments; the new one has the first."""
        if sizes is None:
            sizes = {}
            for first, *_ in groups:
                sizes |= swap.sizes_of(self._directory, first, self._files)
        for base_offsets in groups:
            first = self.base_offsets.index(base_offsets[0])
            old = self._segments[first : first + len(base_offsets)]
            new = Segment(self._directory, base_offsets[0], sizes, index_interval_bytes, self._files, self._open_files)
            new.next_offset = old[-1].next_offset
            self._segments[first : first + len(old)] = [new]
            self.base_offsets[first : first + len(old)] = [new.base_offset]
            for segment in old:
                segment.release()
        self.shape += 1
        self.are_swapping = False

    # -- at the end

    def drop_behind(self, offset: int) -> None:
        """Those that begin behind it; the one that holds it is the active one then."""
        self._drop_from(bisect_right(self.base_offsets, offset))
        self.active = self._segments[-1]

    def drop_all(self) -> None:
        """A new one has to follow."""
        self._drop_from(0)

    def _drop_from(self, number: int) -> None:
        """Each is gone from the disk before the next: a crash leaves a shorter log, never one with a hole."""
        self.shape += 1
        while len(self._segments) > number:
            segment = self._segments.pop()
            self.base_offsets.pop()
            segment.release()
            self._remove([segment.base_offset])

    def remove_detached(self) -> None:
        if self.detached:
            self._remove(self.detached)
            self.detached.clear()

    def _remove(self, base_offsets: Iterable[int]) -> None:
        """Their last names go after the sync: should it fail, they tell the next process what may come back."""
        deleted = [path for base in base_offsets for path in swap.set_deleted(self._directory, base, self._files)]
        self._files.sync(self._directory)
        for path in deleted:
            self._files.remove(path)
