"""How far the files of a partition can be trusted when it is opened, and what is made of the rest.

After a clean stop: sizes and ends fit together, or an index is built anew. After an unclean one, what lies below
the recovery point is on the disk and trusted in the same way; everything behind it is read, CRCs included, and the
log ends at the first batch that is not intact. What is cut off is kept beside the log. Damage *below* the recovery
point is not a torn tail: it is reported, nothing is cut, and the partition stays shut.

Producer state, leader epochs and the index of aborted transactions follow from the batches: what was not trusted
is replayed.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pylog.storage import failed_sync, swap
from pylog.storage.batch import BatchHeader
from pylog.storage.checkpoints import RECOVERY_POINTS
from pylog.storage.cuts import Cut, Cuts
from pylog.storage.epochs import LeaderEpochs
from pylog.storage.errors import CorruptBatch, DamagedSegment, StorageError
from pylog.storage.index import INT32_MAX
from pylog.storage.index_checks import ends_are_sound, sizes_are_sound
from pylog.storage.log_config import LogConfig
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import FileSystem
from pylog.storage.producers import Producers, snapshot_offsets
from pylog.storage.recovered_epochs import RecoveredEpochs
from pylog.storage.recovered_producers import RecoveredProducers
from pylog.storage.scan import checked_batches, in_order
from pylog.storage.segment import ABORTED_SUFFIX, LOG_SUFFIX, Segment
from pylog.storage.transactions import TransactionIndex

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trust:
    """What is known about a log before it is looked at."""

    clean: bool  # closed, and not touched since
    recovery_point: int = 0  # offsets below it are on the disk
    log_start_offset: int = 0  # offsets below it were deleted
    cleaned_until: int = 0  # offsets below it may have been compacted, gaps between segments included


CLEAN = Trust(clean=True)
UNCLEAN = Trust(clean=False)


@dataclass(frozen=True, slots=True)
class Loaded:
    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    epochs_stored: bool
    cuts: list[Cut]
    trusted: bool  # nothing had to be repaired: all of it is known to be on the disk
    has_note: bool  # of a sync that failed; to be removed after the next that succeeds


class Loader:
    """Opens the segments of one directory. Use `load` once."""

    def __init__(
        self, directory: Path, config: LogConfig, trust: Trust, files: FileSystem, open_files: OpenFiles
    ) -> None:
        self._directory = directory
        self._config = config
        self._trust = trust
        self._files = files
        self._open_files = open_files
        self._segments: list[Segment] = []
        self._cuts = Cuts(directory, files)
        self._repaired = False
        self._has_note = False

    def load(self) -> Loaded:
        sizes = swap.tidy(self._directory, self._files)
        self._has_note = failed_sync.NOTE_NAME in sizes
        base_offsets = self._base_offsets(sizes)
        first_offset = base_offsets[0] if base_offsets else 0
        producers = RecoveredProducers(self._directory, snapshot_offsets(sizes), first_offset, self._files)
        epochs = RecoveredEpochs(self._directory, sizes, self._files)
        self._open_segments(base_offsets, sizes, producers, epochs)
        segments = self._segments
        if self._trust.clean and segments:
            self._check_end(segments[-1])
        self._check_reaches_recovery_point()
        self._start_where_records_were_deleted(producers)
        for segment in segments[:-1]:
            if not self._trust.clean:
                segment.store_indexes()
            segment.seal()
        if not producers.are_loaded and not producers.load(segments, segments[-1].next_offset, clean=self._trust.clean):
            self._repaired = True  # so that the next close leaves a snapshot
        epochs.bound(segments, self._trust.log_start_offset)
        self._make_first_name_durable()
        producers.remove_strange_snapshots(segments)
        for segment in segments:
            segment.release()
        return Loaded(
            segments,
            producers.producers,
            epochs.epochs,
            epochs.are_stored and not self._has_note,
            self._cuts.made,
            self._all_is_trusted,
            self._has_note,
        )

    @property
    def _all_is_trusted(self) -> bool:
        return self._trust.clean and not (self._repaired or self._cuts.made or self._has_note)

    def _open_segments(
        self, base_offsets: list[int], sizes: dict[str, int], producers: RecoveredProducers, epochs: RecoveredEpochs
    ) -> None:
        next_offset = 0
        for number, base_offset in enumerate(base_offsets):
            segment = Segment(
                self._directory, base_offset, sizes, self._config.index_interval_bytes, self._files, self._open_files
            )
            if self._segments and base_offset < next_offset:
                self._cuts.set_aside([base_offset], sizes, next_offset, "repeats offsets of the segment before it")
                continue
            if self._segments and not self._follows(base_offset, next_offset):
                self._check_reaches_recovery_point()
                self._cuts.set_aside(base_offsets[number:], sizes, next_offset, "offsets before it are missing")
                break
            following = base_offsets[number + 1] if number + 1 < len(base_offsets) else None
            whole = True
            if self._is_trusted(following):
                self._open_trusted(segment, following, sizes)
                if sizes.get(segment.path_with(ABORTED_SUFFIX).name):
                    self._check_aborted(segment, producers)
            else:
                if not producers.are_loaded:
                    producers.load(self._segments, base_offset)
                if self._has_note:
                    failed_sync.write_anew(segment.path, self._files)
                whole = self._recover(segment, max(next_offset, base_offset), following, producers, epochs)
            segment.release()
            next_offset = segment.next_offset
            self._segments.append(segment)
            if not whole:
                self._cuts.set_aside(base_offsets[number + 1 :], sizes, next_offset, "the segment before it was cut")
                break

    # -- which segments there are

    def _base_offsets(self, sizes: dict[str, int]) -> list[int]:
        base_offsets = []
        for name in sorted(sizes):
            match = swap.SEGMENT_FILE.fullmatch(name)
            if match and match[2] == LOG_SUFFIX:
                base_offsets.append(int(match[1]))
            elif match and match[1] + LOG_SUFFIX not in sizes:
                self._files.remove(self._directory / name)  # an index whose log is gone
        expired = [base for base, end in pairwise(base_offsets) if end <= self._trust.log_start_offset]
        if expired:  # the stop came before the removal
            self._files.sync(self._directory)  # see `_make_first_name_durable`
            for base_offset in expired:
                swap.remove_segment(self._directory, base_offset, self._files)
        return base_offsets[len(expired) :]

    def _is_trusted(self, following: int | None) -> bool:
        """With a recovery point at the very end of a segment, its indexes may have been stored after the flush."""
        return self._trust.clean or (following is not None and following < self._trust.recovery_point)

    def _follows(self, base_offset: int, next_offset: int) -> bool:
        """Whether a segment can come after one that ends there. Only compaction leaves gaps, and only where it was."""
        gaps_until = max(self._trust.recovery_point, self._trust.cleaned_until)
        return base_offset == next_offset or base_offset <= gaps_until or self._trust.clean

    def _check_reaches_recovery_point(self) -> None:
        """What was on the disk is not cut off by a stop: whole batches or segments at the end have been lost since.
        A log without segments was being emptied."""
        segments, point = self._segments, self._trust.recovery_point
        if segments and not self._trust.clean and segments[-1].next_offset < point:
            last = segments[-1]
            for segment in segments:
                segment.release()
            raise DamagedSegment(
                last.path,
                last.size_bytes,
                f"the log ends at offset {last.next_offset}, and everything below {point} was on the disk; "
                f"to open it as it is, remove {RECOVERY_POINTS} from {self._directory.parent}",
            )

    def _start_where_records_were_deleted(self, producers: RecoveredProducers) -> None:
        """A log without segments, or one whose end was lost behind the point up to which records were deleted."""
        segments, start = self._segments, self._trust.log_start_offset
        if segments and segments[-1].next_offset >= start:
            return
        for segment in segments:
            segment.release()
        sizes = self._files.sizes_in(self._directory)
        bases = [segment.base_offset for segment in segments]
        self._cuts.set_aside(bases, sizes, start, f"it ends before offset {start}, where the log begins")
        segments[:] = [
            Segment.create(self._directory, start, self._config.index_interval_bytes, self._files, self._open_files)
        ]
        producers.forget()
        self._repaired = True

    def _make_first_name_durable(self) -> None:
        """Were it lost in a crash and a later one kept, the log would seem to begin there. Later ones that are lost
        leave a gap, which is noticed. Everything up to the recovery point is known to be on the disk."""
        if not self._all_is_trusted and self._segments[0].base_offset >= self._trust.recovery_point:
            self._files.sync(self._directory)

    # -- trusted segments

    def _open_trusted(self, segment: Segment, following: int | None, sizes: dict[str, int]) -> None:
        if self._trust.clean and following is not None and sizes_are_sound(segment, sizes):
            segment.next_offset = following
            return
        if ends_are_sound(segment, self._config.index_interval_bytes):
            return
        self._repaired = True
        _log.info("%s: reading %d bytes to build its indexes anew", segment.path, segment.size_bytes)
        size_bytes = segment.size_bytes
        try:
            segment.rebuild(in_order(segment.headers(0), segment.base_offset, segment.base_offset + INT32_MAX))
        except StorageError as error:
            damaged = DamagedSegment(segment.path, segment.size_bytes, f"{error}, of {size_bytes} bytes")
            raise damaged from error
        if following is not None:
            segment.store_indexes()
            segment.sync()  # no flush will: it was sealed long ago

    def _check_end(self, segment: Segment) -> None:
        """A clean stop leaves the end of the log as its recovery point. Where the last batch says another, one of them
        is wrong, and if it is the batch, the next append would get offsets that are taken."""
        point = self._trust.recovery_point
        if point in (0, segment.next_offset):
            return
        position, next_offset = 0, segment.base_offset
        try:
            for position, header in checked_batches(segment.file, segment.size_bytes):
                if header.base_offset != next_offset:
                    raise CorruptBatch(f"a batch from offset {header.base_offset} on, where {next_offset} is next")
                next_offset = header.next_offset
                position += header.size_bytes
        except StorageError as error:
            reason = f"{error}; the log was closed with {point} as its next offset"
            raise DamagedSegment(segment.path, position, reason) from error

    def _check_aborted(self, segment: Segment, producers: RecoveredProducers) -> None:
        """An index of aborted transactions that cannot be is built anew from the batches."""
        index = TransactionIndex(segment.path_with(ABORTED_SUFFIX), self._files)
        try:
            index.check(segment.base_offset, segment.next_offset)
        except StorageError as error:
            _log.error("%s; it is built anew", error)
            before = producers.again()
            before.load(self._segments, segment.base_offset)
            aborted = [before.apply(segment, position, header) for position, header in segment.headers(0)]
            index.replace(entry for entry in aborted if entry is not None)

    # -- everything behind the recovery point

    def _recover(
        self,
        segment: Segment,
        next_offset: int,
        following: int | None,
        producers: RecoveredProducers,
        epochs: RecoveredEpochs,
    ) -> bool:
        """Read the segment, cut it behind its last good batch, and build its indexes anew. False if it was cut."""
        size_bytes = segment.size_bytes
        _log.info("%s: reading %d bytes after an unclean stop", segment.path, size_bytes)
        self._files.remove(segment.path_with(ABORTED_SUFFIX))
        batches = in_order(
            self._batches(segment),
            next_offset,
            segment.base_offset + INT32_MAX,
            following=following,
            gap_at_end=self._config.compact,
        )
        try:
            segment.rebuild(self._followed(segment, batches, producers, epochs))
        except StorageError as error:
            position = segment.size_bytes
            if segment.next_offset < self._trust.recovery_point:
                damaged = DamagedSegment(segment.path, position, f"{error}, below the recovery point")
                segment.size_bytes = size_bytes
                raise damaged from error
            self._cuts.cut(segment, size_bytes, str(error))
            return False
        return True

    def _batches(self, segment: Segment) -> Iterator[tuple[int, BatchHeader]]:
        start = 0
        if segment.base_offset < self._trust.recovery_point:
            for position, header in segment.headers(0):
                if header.last_offset >= self._trust.recovery_point:
                    break
                yield position, header
                start = position + header.size_bytes
        yield from checked_batches(segment.file, segment.size_bytes, start)

    def _followed(
        self,
        segment: Segment,
        batches: Iterator[tuple[int, BatchHeader]],
        producers: RecoveredProducers,
        epochs: RecoveredEpochs,
    ) -> Iterator[tuple[int, BatchHeader]]:
        for position, header in epochs.followed(batches, segment.base_offset):
            aborted = producers.apply(segment, position, header)
            if aborted is not None:
                segment.aborts.note(aborted)
            yield position, header
