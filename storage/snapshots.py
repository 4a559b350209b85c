"""The snapshots of a log's producers, each at an offset: where a segment was sealed, and where the log was closed.

One that is lost costs time and no state: an older one, and the batches behind it, tell the same.
"""

from pathlib import Path

from pylog.storage.ports import FileSystem
from pylog.storage.producers import Producers, snapshot_name, snapshot_offsets


class Snapshots:
    __slots__ = ("_directory", "_files")

    def __init__(self, directory: Path, files: FileSystem) -> None:
        self._directory = directory
        self._files = files

    def offsets(self) -> list[int]:
        return snapshot_offsets(self._files.sizes_in(self._directory))

    def store(self, producers: Producers, offset: int) -> None:
        self._files.replace(self._directory / snapshot_name(offset), producers.snapshot(), durable=False)

    def sync(self, offset: int) -> None:
        """If there is one."""
        path = self._directory / snapshot_name(offset)
        if self._files.size_of(path) is not None:
            self._files.sync(path)

    def remove(self, offset: int) -> None:
        self._files.remove(self._directory / snapshot_name(offset))

    def remove_behind(self, offset: int) -> None:
        for other in self.offsets():
            if other > offset:
                self.remove(other)
