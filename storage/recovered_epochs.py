"""The leader epochs of a log, as its files tell them: the checkpoint where it and the batches agree, else the batches.

Where the file says the same as a batch, it may say more: compaction takes the first batch of an epoch away, and then
the file alone knows where that one began. Where it does not, it is of something that was lost.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pylog.storage.batch import BatchHeader
from pylog.storage.epochs import FILE_NAME, UNDEFINED_EPOCH, LeaderEpochs
from pylog.storage.errors import StorageError
from pylog.storage.log_config import INT64_MAX
from pylog.storage.ports import FileSystem
from pylog.storage.segment import Segment

_log = logging.getLogger(__name__)


class RecoveredEpochs:
    def __init__(self, directory: Path, sizes: dict[str, int], files: FileSystem) -> None:
        """Those of the file, if it is among these and can be read."""
        path = directory / FILE_NAME
        stored: LeaderEpochs | None = None
        size_bytes = sizes.get(FILE_NAME, 0)
        if size_bytes:  # of a new file that was not synced, a crash can leave no bytes
            data = files.read_at(path, 0, size_bytes)
            try:
                stored = LeaderEpochs.decode(data, path)
            except StorageError as error:
                _log.warning("%s; the epochs are read from the log", error)
        self.epochs = LeaderEpochs() if stored is None else stored
        self._are_from_file = stored is not None
        self._is_illegible = stored is None and size_bytes > 0
        self._stored_entries = self.epochs.entries

    @property
    def are_stored(self) -> bool:
        return self.epochs.entries == self._stored_entries and not self._is_illegible

    def followed(
        self, batches: Iterable[tuple[int, BatchHeader]], base_offset: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The same batches, those of the segment from `base_offset` on; what they say of epochs is learnt."""
        known_epoch, known_until, before = UNDEFINED_EPOCH, 0, base_offset - 1
        for position, header in batches:
            if header.leader_epoch != known_epoch or header.last_offset >= known_until:
                known_epoch = header.leader_epoch
                known_until = self._learn(header, before)
            before = header.base_offset
            yield position, header

    def _learn(self, header: BatchHeader, before: int) -> int:
        """The offset at which, by what is known with this batch, another epoch begins; the batch ahead of it began at
        `before`."""
        epochs = self.epochs
        if header.leader_epoch >= 0 and epochs.epoch_for(header.base_offset) != header.leader_epoch:
            epochs.truncate_from_end(before + 1)
            epochs.assign(header.leader_epoch, header.base_offset)
        following = [entry.start_offset for entry in epochs.entries if entry.start_offset > header.base_offset]
        if following and following[0] <= header.last_offset:  # no epoch begins within a batch
            epochs.truncate_from_end(following[0])
            return INT64_MAX
        return following[0] if following else INT64_MAX

    def bound(self, segments: Sequence[Segment], log_start_offset: int) -> None:
        """The file may be older than the log's present start, and newer than its end: they reach the disk in any
        order. Where it told nothing, all batches are looked at."""
        if not self._are_from_file:
            self.epochs = LeaderEpochs()
            for segment in segments:
                for _, header in segment.headers(0):
                    self.epochs.assign(header.leader_epoch, header.base_offset)
        self.epochs.truncate_from_end(segments[-1].next_offset)
        self.epochs.truncate_from_start(max(log_start_offset, segments[0].base_offset))
