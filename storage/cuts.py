"""What is no longer part of a log when it is opened is kept beside it, and told.

A copy or a new name is made first, and is on the disk before the log is cut. If the machine stops in between it is cut
twice, and the second time overwrites what the first one kept.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from pylog.storage import swap
from pylog.storage.ports import FileSystem
from pylog.storage.scan import CHUNK_BYTES
from pylog.storage.segment import LOG_SUFFIX, Segment

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that were no longer part of the log when it was opened."""

    path: Path
    position: int
    size_bytes: int
    next_offset: int  # where the log goes on
    kept_as: Path
    reason: str


class Cuts:
    def __init__(self, directory: Path, files: FileSystem) -> None:
        self.made: list[Cut] = []
        self._directory = directory
        self._files = files

    def set_aside(self, base_offsets: list[int], sizes: dict[str, int], next_offset: int, reason: str) -> None:
        """Whole segments, whose files have these sizes."""
        for base_offset in base_offsets:
            path = swap.file_of(self._directory, base_offset, LOG_SUFFIX)
            kept = path.with_name(f"{path.name}.cut-0")
            self._files.rename(path, kept)
            swap.remove_segment(self._directory, base_offset, self._files)
            self._tell(Cut(path, 0, sizes[path.name], next_offset, kept, reason))
        if base_offsets:
            self._files.sync(self._directory)

    def cut(self, segment: Segment, size_bytes: int, reason: str) -> None:
        """Whatever the file, which has `size_bytes`, holds behind the end of the segment."""
        position = segment.size_bytes
        kept = segment.path.with_name(f"{segment.path.name}.cut-{position}")
        if position < size_bytes:
            self._files.create_empty(kept)
            for start in range(position, size_bytes, CHUNK_BYTES):
                chunk = segment.file.read_at(start, min(CHUNK_BYTES, size_bytes - start))
                self._files.write_at(kept, start - position, chunk)
            self._files.sync(kept)
            self._files.sync(self._directory)
            self._files.truncate(segment.path, position)
            self._files.sync(segment.path)
        self._tell(Cut(segment.path, position, size_bytes - position, segment.next_offset, kept, reason))

    def _tell(self, cut: Cut) -> None:
        self.made.append(cut)
        _log.warning(
            "%s: cut at byte %d: the log goes on at offset %d; the %d bytes behind are kept in %s (%s)",
            cut.path,
            cut.position,
            cut.next_offset,
            cut.size_bytes,
            cut.kept_as.name,
            cut.reason,
        )
