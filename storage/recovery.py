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
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from pylog.storage import swap
from pylog.storage.batch import NO_PRODUCER_ID, BatchHeader
from pylog.storage.checkpoints import RECOVERY_POINTS
from pylog.storage.epochs import FILE_NAME, UNDEFINED_EPOCH, LeaderEpochs
from pylog.storage.errors import CorruptBatch, DamagedSegment, StorageError
from pylog.storage.index import INT32_MAX
from pylog.storage.log_config import INT64_MAX, LogConfig
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import FileSystem
from pylog.storage.producers import CompletedTransaction, Producers, snapshot_name, snapshot_offsets
from pylog.storage.scan import CHUNK_BYTES, checked_batches, ends_are_sound, in_order, sizes_are_sound
from pylog.storage.segment import ABORTED_SUFFIX, LOG_SUFFIX, SUFFIXES, Segment
from pylog.storage.transactions import TransactionIndex, read_marker

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
class Cut:
    """Bytes that were no longer part of the log when it was opened."""

    path: Path
    position: int
    size_bytes: int
    next_offset: int  # where the log goes on
    kept_as: Path
    reason: str


@dataclass(slots=True)
class Loaded:
    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    epochs_stored: bool = True
    cuts: list[Cut] = field(default_factory=list)
    trusted: bool = True  # nothing had to be repaired: all of it is known to be on the disk


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
        self._loaded = Loaded([], Producers(), LeaderEpochs(), trusted=trust.clean)
        self._snapshots: list[int] = []
        self._first_offset = 0  # that the log may still have
        self._replayed_until: int | None = None  # where the producers' state stands; None: not loaded yet

    def load(self) -> Loaded:
        sizes = swap.tidy(self._directory, self._files)
        self._snapshots = snapshot_offsets(sizes)
        base_offsets = self._base_offsets(sizes)
        self._first_offset = base_offsets[0] if base_offsets else 0
        loaded_epochs = self._load_epochs(sizes)
        stored_epochs = self._loaded.epochs.entries
        next_offset = 0
        loaded = self._loaded
        for number, base_offset in enumerate(base_offsets):
            segment = Segment(
                self._directory, base_offset, sizes, self._config.index_interval_bytes, self._files, self._open_files
            )
            if loaded.segments and base_offset < next_offset:
                self._set_aside([base_offset], sizes, next_offset, "repeats offsets of the segment before it")
                continue
            if loaded.segments and not self._follows(base_offset, next_offset):
                self._check_reaches_recovery_point()
                self._set_aside(base_offsets[number:], sizes, next_offset, "offsets before it are missing")
                break
            following = base_offsets[number + 1] if number + 1 < len(base_offsets) else None
            whole = True
            if self._is_trusted(following):
                self._open_trusted(segment, following, sizes)
                if sizes.get(segment.path_with(ABORTED_SUFFIX).name):
                    self._check_aborted(segment)
            else:
                if self._replayed_until is None:
                    self._load_producers(base_offset)
                whole = self._recover(segment, max(next_offset, base_offset), following)
            segment.release()
            next_offset = segment.next_offset
            loaded.segments.append(segment)
            if not whole:
                self._set_aside(base_offsets[number + 1 :], sizes, next_offset, "the segment before it was cut")
                break
        if self._trust.clean and loaded.segments:
            self._check_end(loaded.segments[-1])
        self._check_reaches_recovery_point()
        self._start_where_records_were_deleted()
        for segment in loaded.segments[:-1]:
            if not self._trust.clean:
                segment.store_indexes()
            segment.seal()
        if self._replayed_until is None:
            self._load_producers(loaded.segments[-1].next_offset)
        if not loaded_epochs:
            self._find_epochs()
        self._bound_epochs()
        self._make_first_name_durable()
        self._remove_strange_snapshots()
        for segment in loaded.segments:
            segment.release()
        illegible = not loaded_epochs and bool(sizes.get(FILE_NAME))
        loaded.epochs_stored = loaded.epochs.entries == stored_epochs and not illegible
        return loaded

    def producers_of(self, segments: list[Segment]) -> Producers:
        """The state at the end of these segments, which are open already."""
        self._loaded.segments = segments
        self._first_offset = segments[0].base_offset
        self._snapshots = snapshot_offsets(self._files.sizes_in(self._directory))
        self._load_producers(segments[-1].next_offset)
        return self._loaded.producers

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
                self._remove(base_offset)
        return base_offsets[len(expired) :]

    def _remove(self, base_offset: int) -> None:
        for suffix in reversed(SUFFIXES):
            self._files.remove(swap.file_of(self._directory, base_offset, suffix))

    def _is_trusted(self, following: int | None) -> bool:
        """With a recovery point at the very end of a segment, its indexes may have been stored after the flush."""
        return self._trust.clean or (following is not None and following < self._trust.recovery_point)

    def _follows(self, base_offset: int, next_offset: int) -> bool:
        """Whether a segment can come after one that ends there. Only compaction leaves gaps, and only where it was."""
        gaps_until = max(self._trust.recovery_point, self._trust.cleaned_until)
        return base_offset == next_offset or base_offset <= gaps_until or self._trust.clean

    def _set_aside(self, base_offsets: list[int], sizes: dict[str, int], next_offset: int, reason: str) -> None:
        for base_offset in base_offsets:
            path = swap.file_of(self._directory, base_offset, LOG_SUFFIX)
            kept = path.with_name(f"{path.name}.cut-0")
            self._files.rename(path, kept)
            self._remove(base_offset)
            self._report(Cut(path, 0, sizes[path.name], next_offset, kept, reason))
        if base_offsets:
            self._files.sync(self._directory)

    def _check_reaches_recovery_point(self) -> None:
        """What was on the disk is not cut off by a stop: whole batches or segments at the end have been lost since.
        A log without segments was being emptied."""
        segments, point = self._loaded.segments, self._trust.recovery_point
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

    def _start_where_records_were_deleted(self) -> None:
        """A log without segments, or one whose end was lost behind the point up to which records were deleted."""
        segments, start = self._loaded.segments, self._trust.log_start_offset
        if segments and segments[-1].next_offset >= start:
            return
        for segment in segments:
            segment.release()
        sizes = self._files.sizes_in(self._directory)
        bases = [segment.base_offset for segment in segments]
        self._set_aside(bases, sizes, start, f"it ends before offset {start}, where the log begins")
        segments[:] = [
            Segment.create(self._directory, start, self._config.index_interval_bytes, self._files, self._open_files)
        ]
        # A producer whose newest batches are lost would be refused for ever: better to know nothing of it.
        for offset in self._snapshots:
            self._files.remove(self._directory / snapshot_name(offset))
        self._snapshots = []
        self._loaded.producers = Producers()
        self._replayed_until = start
        self._loaded.trusted = False

    def _make_first_name_durable(self) -> None:
        """Were it lost in a crash and a later one kept, the log would seem to begin there. Later ones that are lost
        leave a gap, which is noticed. Everything up to the recovery point is known to be on the disk."""
        if not self._loaded.trusted and self._loaded.segments[0].base_offset >= self._trust.recovery_point:
            self._files.sync(self._directory)

    # -- trusted segments

    def _open_trusted(self, segment: Segment, following: int | None, sizes: dict[str, int]) -> None:
        if self._trust.clean and following is not None and sizes_are_sound(segment, sizes):
            segment.next_offset = following
            return
        if ends_are_sound(segment, self._config.index_interval_bytes):
            return
        self._loaded.trusted = False
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

    def _check_aborted(self, segment: Segment) -> None:
        """An index of aborted transactions that cannot be is built anew from the batches."""
        path = segment.path_with(ABORTED_SUFFIX)
        try:
            TransactionIndex(path, self._files).check(segment.base_offset, segment.next_offset)
        except StorageError as error:
            _log.error("%s; it is built anew", error)
            before = Loader(self._directory, self._config, UNCLEAN, self._files, self._open_files)
            before._loaded.segments, before._snapshots = self._loaded.segments, list(self._snapshots)
            before._first_offset = self._first_offset
            before._load_producers(segment.base_offset)
            self._files.remove(path)
            for position, header in segment.headers(0):
                ended = before._replay(segment, position, header)
                if ended is not None and ended.aborted:
                    segment.note_aborted(ended.index_entry())
            segment.sync()

    # -- everything behind the recovery point

    def _recover(self, segment: Segment, next_offset: int, following: int | None) -> bool:
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
            segment.rebuild(self._replayed(segment, batches))
        except StorageError as error:
            position = segment.size_bytes
            if segment.next_offset < self._trust.recovery_point:
                damaged = DamagedSegment(segment.path, position, f"{error}, below the recovery point")
                segment.size_bytes = size_bytes
                raise damaged from error
            self._cut(segment, size_bytes, str(error))
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

    def _replayed(
        self, segment: Segment, batches: Iterator[tuple[int, BatchHeader]]
    ) -> Iterator[tuple[int, BatchHeader]]:
        known_epoch, known_until, before = UNDEFINED_EPOCH, 0, segment.base_offset - 1
        for position, header in batches:
            if header.leader_epoch != known_epoch or header.last_offset >= known_until:
                known_epoch = header.leader_epoch
                known_until = self._learn_epoch(header, before)
            before = header.base_offset
            ended = self._replay(segment, position, header)
            if ended is not None and ended.aborted:
                segment.note_aborted(ended.index_entry())
            yield position, header

    def _learn_epoch(self, header: BatchHeader, before: int) -> int:
        """The offset at which, by what is known with this batch, another epoch begins; the last one began at `before`.

        Where the file says the same, it may say more: compaction takes the first batch of an epoch away, and then the
        file alone knows where that one began. Where it does not, it is of something that was lost."""
        epochs = self._loaded.epochs
        if header.leader_epoch >= 0 and epochs.epoch_for(header.base_offset) != header.leader_epoch:
            epochs.truncate_from_end(before + 1)
            epochs.assign(header.leader_epoch, header.base_offset)
        following = [entry.start_offset for entry in epochs.entries if entry.start_offset > header.base_offset]
        if following and following[0] <= header.last_offset:  # no epoch begins within a batch
            epochs.truncate_from_end(following[0])
            return INT64_MAX
        return following[0] if following else INT64_MAX

    def _cut(self, segment: Segment, size_bytes: int, reason: str) -> None:
        """Keep the tail, then cut it. Twice, if the machine stops in between: the second time overwrites the first."""
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
        self._report(Cut(segment.path, position, size_bytes - position, segment.next_offset, kept, reason))

    def _report(self, cut: Cut) -> None:
        self._loaded.cuts.append(cut)
        self._loaded.trusted = False
        _log.warning(
            "%s: cut at byte %d: the log goes on at offset %d; the %d bytes behind are kept in %s (%s)",
            cut.path,
            cut.position,
            cut.next_offset,
            cut.size_bytes,
            cut.kept_as.name,
            cut.reason,
        )

    # -- what follows from the batches

    def _load_producers(self, end_offset: int) -> None:
        """The state before `end_offset`: the newest snapshot that can be read, and the batches behind it. One of before
        the first batch is worse than none: what came in between is missing, and producers would be refused for it."""
        start, damaged = None, False
        for offset in sorted(self._snapshots, reverse=True):
            if not self._first_offset <= offset <= end_offset or start is not None:
                continue
            path = self._directory / snapshot_name(offset)
            try:
                self._loaded.producers = Producers.from_snapshot(self._files.read(path) or b"", path)
                start = offset
            except StorageError as error:
                _log.warning("%s; it is not used", error)
                self._files.remove(path)
                damaged = True
        self._replayed_until = end_offset
        if damaged:
            self._loaded.trusted = False  # so that the next close leaves a new one
        elif start is None and self._trust.clean:
            return  # a log that no producer with an id wrote to has none
        self._replay_from(start or 0, end_offset)

    def _replay_from(self, start: int, end_offset: int) -> None:
        for segment in self._loaded.segments:
            if segment.next_offset <= start or segment.base_offset >= end_offset:
                continue
            for position, header in segment.headers(segment.position_of(start)):
                if header.base_offset >= end_offset:
                    break
                self._replay(segment, position, header)

    def _replay(self, segment: Segment, position: int, header: BatchHeader) -> CompletedTransaction | None:
        if header.producer_id == NO_PRODUCER_ID:
            return None
        marker = None
        if header.is_control:
            try:
                marker = read_marker(segment.file.read_at(position, header.size_bytes), 0)
            except StorageError as error:
                raise DamagedSegment(segment.path, position, str(error)) from error
        return self._loaded.producers.applied(header, marker)

    def _remove_strange_snapshots(self) -> None:
        """Those behind the end, and those that belong to no segment: no truncation or recovery would ask for them."""
        segments = self._loaded.segments
        wanted = {segment.base_offset for segment in segments} | {segments[-1].next_offset}
        for offset in self._snapshots:
            if offset not in wanted:
                self._files.remove(self._directory / snapshot_name(offset))

    def _load_epochs(self, sizes: dict[str, int]) -> bool:
        path = self._directory / FILE_NAME
        if not sizes.get(FILE_NAME):  # no bytes: of a new file that was not synced, a crash can leave that much
            return False
        data = self._files.read_at(path, 0, sizes[FILE_NAME])
        try:
            self._loaded.epochs = LeaderEpochs.decode(data, path)
        except StorageError as error:
            _log.warning("%s; the epochs are read from the log", error)
            return False
        return True

    def _find_epochs(self) -> None:
        epochs = LeaderEpochs()
        for segment in self._loaded.segments:
            for _, header in segment.headers(0):
                epochs.assign(header.leader_epoch, header.base_offset)
        self._loaded.epochs = epochs
        self._loaded.epochs_stored = epochs.latest is None

    def _bound_epochs(self) -> None:
        """The file may be older than the log's present start, and newer than its end: they reach the disk in any
        order."""
        segments, epochs = self._loaded.segments, self._loaded.epochs
        start = max(self._trust.log_start_offset, segments[0].base_offset)
        shorter = epochs.truncate_from_end(segments[-1].next_offset)
        if epochs.truncate_from_start(start) or shorter:
            self._loaded.epochs_stored = False
