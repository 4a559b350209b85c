"""The state of a log's producers, as its files tell it: the newest snapshot that can be read and the batches behind it.

Batches that end a transaction also tell which were aborted: what the index of their segment holds.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from pylog.storage.batch import NO_PRODUCER_ID, BatchHeader
from pylog.storage.errors import DamagedSegment, StorageError
from pylog.storage.ports import FileSystem
from pylog.storage.producers import Producers, snapshot_name, snapshot_offsets
from pylog.storage.segment import Segment
from pylog.storage.transactions import AbortedTransaction, read_marker

_log = logging.getLogger(__name__)


def producers_at_end(directory: Path, segments: Sequence[Segment], files: FileSystem) -> Producers:
    """The state at the end of these segments, which are open already."""
    snapshots = snapshot_offsets(files.sizes_in(directory))
    recovered = RecoveredProducers(directory, snapshots, segments[0].base_offset, files)
    recovered.load(segments, segments[-1].next_offset)
    return recovered.producers


class RecoveredProducers:
    def __init__(self, directory: Path, snapshots: Sequence[int], first_offset: int, files: FileSystem) -> None:
        """There are snapshots at these offsets, and no batch before `first_offset`."""
        self.producers = Producers()
        self.are_loaded = False
        self._directory = directory
        self._snapshots = snapshots
        self._first_offset = first_offset
        self._files = files

    def again(self) -> "RecoveredProducers":
        """Of the same log, to be loaded at another offset."""
        return RecoveredProducers(self._directory, self._snapshots, self._first_offset, self._files)

    def load(self, segments: Iterable[Segment], end_offset: int, *, clean: bool = False) -> bool:
        """The state before `end_offset`; False if a snapshot was damaged, and a new one is wanted.

        A snapshot of before the first batch is worse than none: what came in between is missing, and producers would
        be refused for it. A log that was closed and has none was not written to by a producer with an id."""
        self.are_loaded = True
        start, damaged = None, False
        for offset in sorted(self._snapshots, reverse=True):
            if not self._first_offset <= offset <= end_offset or start is not None:
                continue
            path = self._directory / snapshot_name(offset)
            try:
                self.producers = Producers.from_snapshot(self._files.read(path) or b"", path)
                start = offset
            except StorageError as error:
                _log.warning("%s; it is not used", error)
                self._files.remove(path)
                damaged = True
        if start is not None or damaged or not clean:
            self._replay(segments, start or 0, end_offset)
        return not damaged

    def _replay(self, segments: Iterable[Segment], start: int, end_offset: int) -> None:
        for segment in segments:
            if segment.next_offset <= start or segment.base_offset >= end_offset:
                continue
            for position, header in segment.headers(segment.position_of(start)):
                if header.base_offset >= end_offset:
                    break
                self.apply(segment, position, header)

    def apply(self, segment: Segment, position: int, header: BatchHeader) -> AbortedTransaction | None:
        """The next batch; which transaction was aborted with it."""
        if header.producer_id == NO_PRODUCER_ID:
            return None
        marker = None
        if header.is_control:
            try:
                marker = read_marker(segment.file.read_at(position, header.size_bytes), 0)
            except StorageError as error:
                raise DamagedSegment(segment.path, position, str(error)) from error
        ended = self.producers.applied(header, marker)
        return ended.index_entry() if ended is not None and ended.aborted else None

    def forget(self) -> None:
        """A producer whose newest batches are lost would be refused for ever: better to know nothing of it."""
        for offset in self._snapshots:
            self._files.remove(self._directory / snapshot_name(offset))
        self._snapshots = ()
        self.producers = Producers()
        self.are_loaded = True

    def remove_strange_snapshots(self, segments: Sequence[Segment]) -> None:
        """Those behind the end, and those that belong to no segment: no truncation or recovery would ask for them."""
        wanted = {segment.base_offset for segment in segments} | {segments[-1].next_offset}
        for offset in self._snapshots:
            if offset not in wanted:
                self._files.remove(self._directory / snapshot_name(offset))
