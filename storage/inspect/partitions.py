"""One partition: its segments in order, each with its indexes; then what its other files say of them."""

from dataclasses import dataclass
from pathlib import Path

from pylog.storage.epochs import LeaderEpochs
from pylog.storage.errors import DamagedFile, StorageError
from pylog.storage.failed_sync import NOTE_NAME
from pylog.storage.inspect import names
from pylog.storage.inspect.deep import SHALLOW, Depth
from pylog.storage.inspect.findings import Report, Severity
from pylog.storage.inspect.names import Kind
from pylog.storage.inspect.segments import SegmentFiles, SegmentVerifier, check_order
from pylog.storage.inspect.small_files import read_metadata, read_small
from pylog.storage.inspect.state import LogState
from pylog.storage.ports import FileSystem
from pylog.storage.producers import Producers

_SWAP = ".swap"


@dataclass(frozen=True)
class Known:
    """What the data directory says of a partition; None where it says nothing."""

    clean: bool = False
    recovery_point: int | None = None
    log_start_offset: int | None = None
    cleaned_offset: int | None = None
    high_watermark: int | None = None


def report_error(path: Path, error: Exception, report: Report, severity: Severity = Severity.DAMAGE) -> None:
    """One file cannot be read or understood. Under a running broker it may just have been deleted."""
    if isinstance(error, FileNotFoundError):
        report.add(Severity.NOTE, path, "it went away while it was looked at")
    elif isinstance(error, DamagedFile):
        report.add(severity, error.path, f"{error.place}: {error.reason}")
    elif isinstance(error, StorageError):
        report.add(severity, path, str(error))
    else:
        report.add(Severity.DAMAGE, path, f"it cannot be read: {error}")


def verify_partition(directory: Path, known: Known, report: Report, depth: Depth, files: FileSystem) -> None:
    _PartitionVerifier(directory, known, report, depth, files).run()


class _PartitionVerifier:
    def __init__(self, directory: Path, known: Known, report: Report, depth: Depth, files: FileSystem) -> None:
        self._directory = directory
        self._known = known
        self._report = report
        self._depth = depth
        self._files = files
        self._sizes = files.sizes_in(directory)
        self._state = LogState(
            log_start_offset=known.log_start_offset or 0,
            cleaned_offset=known.cleaned_offset,
            torn_from=known.recovery_point,
            clean=known.clean,
        )
        self._covered: list[tuple[int, int]] = []  # (base offset, next offset) of every segment
        self._missing: list[tuple[Path, int, int]] = []  # (the segment behind, first offset, last offset)
        self._swapped_until = -1  # the segments up to here go with a swap that was not finished

    def run(self) -> None:
        report, sizes = self._report, self._sizes
        report.partitions += 1
        report.files += sum(names.kind_of(name) is not None for name in sizes)
        if names.EPOCHS in sizes:
            self._state.epochs = _read_epochs(self._directory / names.EPOCHS, self._unsynced, report, self._files)
        if names.METADATA in sizes:
            _check_metadata(self._directory / names.METADATA, report, self._files)
        base_offsets = sorted(self._logs())
        self._state.first_offset = base_offsets[0] if base_offsets else 0
        for number, base_offset in enumerate(base_offsets):
            following = base_offsets[number + 1] if number + 1 < len(base_offsets) else None
            self._check_segment(base_offset, following)
        self._report_missing()
        for name in sorted(sizes):
            self._check_beside(name)
        self._check_bounds()

    @property
    def _unsynced(self) -> Severity:
        """Of what is wrong with files that are not synced at once, and are made anew from the log."""
        return Severity.DAMAGE if self._known.clean else Severity.TORN

    def _severity_at(self, offset: int) -> Severity:
        recovery_point = self._known.recovery_point
        unsynced = not self._known.clean and recovery_point is not None and offset >= recovery_point
        return Severity.TORN if unsynced else Severity.DAMAGE

    # -- segments

    def _logs(self) -> set[int]:
        """Base offsets. A swap that was not finished counts: the next start finishes it."""
        logs = (name.removesuffix(_SWAP) for name in self._sizes)
        return {names.offset_in(name) for name in logs if names.kind_of(name) is Kind.LOG}

    def _file(self, base_offset: int, kind: Kind) -> tuple[Path, int] | None:
        """The newest of the files that a segment has of a kind."""
        name = f"{base_offset:020d}{kind.value}"
        swapping = f"{base_offset:020d}{Kind.LOG.value}{_SWAP}" in self._sizes
        for candidate in (name + _SWAP, name) if swapping else (name,):
            if candidate in self._sizes:
                return self._directory / candidate, self._sizes[candidate]
        return None

    def _check_segment(self, base_offset: int, following: int | None) -> None:
        state, report = self._state, self._report
        log = self._file(base_offset, Kind.LOG)
        assert log is not None
        path, log_bytes = log
        swapping = path.name.endswith(_SWAP)
        if swapping:
            report.add(Severity.NOTE, path, "compaction was about to put it in its place; the next start does")
        if self._covered and base_offset < state.next_offset:
            if base_offset > self._swapped_until:
                message = f"the segment before it has offset {state.next_offset - 1} already"
                report.add(self._severity_at(following or state.next_offset), path, message, first_offset=base_offset)
            return
        if self._covered and base_offset > state.next_offset and base_offset > (self._known.cleaned_offset or 0):
            self._missing.append((path, state.next_offset, base_offset - 1))
        segment = SegmentFiles(
            base_offset,
            path,
            log_bytes,
            self._index(base_offset, Kind.OFFSET_INDEX, following),
            self._index(base_offset, Kind.TIME_INDEX, following),
            self._directory / f"{base_offset:020d}{Kind.TXN_INDEX.value}{_SWAP if swapping else ''}",
            following,
        )
        state.interrupted = state.interrupted or base_offset != state.next_offset
        state.next_offset = base_offset
        try:
            SegmentVerifier(segment, state, report, self._files, self._depth).run()
        except OSError as error:
            report_error(path, error, report)
            state.next_offset = max(state.next_offset, following or 0)
        self._covered.append((base_offset, state.next_offset))
        if swapping:
            self._swapped_until = state.next_offset - 1

    def _index(self, base_offset: int, kind: Kind, following: int | None) -> tuple[Path, int] | None:
        found = self._file(base_offset, kind)
        if found is None:
            severity = self._unsynced if following is None else self._severity_at(following)
            missing = self._directory / f"{base_offset:020d}{kind.value}"
            self._report.add(severity, missing, "it is missing; it can be built anew from the log")
        return found

    def _report_missing(self) -> None:
        """Offsets between segments that nobody has. Compaction leaves gaps inside segments as well: where there are
        none of those, and it is not known to have been here, a segment is lost."""
        compacted = self._state.compacted or self._known.cleaned_offset is None
        for path, first, last in self._missing:
            severity = Severity.NOTE if compacted else self._severity_at(first)
            message = "no segment has these offsets" + ("; compaction leaves such gaps" if compacted else "")
            self._report.add(severity, path, message, first_offset=first, last_offset=last)

    # -- the other files

    def _check_beside(self, name: str) -> None:
        path, report = self._directory / name, self._report
        match names.kind_of(name):
            case Kind.PRODUCERS:
                self._check_snapshot(path)
            case Kind.RAFT_SNAPSHOT:
                verify_log_alone(path, self._sizes[name], report, self._depth, self._files)
            case Kind.OFFSET_INDEX | Kind.TIME_INDEX | Kind.TXN_INDEX:
                self._check_orphan(path)
            case None if ".cut-" in name:
                report.add(Severity.NOTE, path, "cut off by a recovery, and kept; no part of the log")
            case None if name == NOTE_NAME:
                report.add(Severity.NOTE, path, "the disk failed: the next start writes anew what it may not have kept")

    def _check_orphan(self, path: Path) -> None:
        """An index without a log. A stop leaves one where the log was deleted, compacted or cut, and says so by
        another name of the log, or another segment has the offsets. Otherwise the log is lost."""
        base_offset = names.offset_in(path.name)
        log = f"{base_offset:020d}{Kind.LOG.value}"
        if not self._sizes[path.name] or any(name == log or name.startswith(log + ".") for name in self._sizes):
            return
        if any(first <= base_offset < behind for first, behind in self._covered):
            return
        if self._covered and base_offset < self._covered[0][0]:
            return  # expired
        self._report.add(self._severity_at(base_offset), path, f"its log, {log}, is missing")

    def _check_snapshot(self, path: Path) -> None:
        """Older ones are not synced, and can be done without: the batches tell what they told. A log that was closed
        begins with the newest."""
        offset, end = names.offset_in(path.name), self._state.next_offset
        check_snapshot(path, self._unsynced if offset >= end else Severity.TORN, self._report, self._files)
        if offset > end:
            self._report.add(self._unsynced, path, f"it is of a log that ends at {offset}, and this one ends at {end}")

    def _check_bounds(self) -> None:
        """What the checkpoints say, beside where the log ends."""
        known, end = self._known, self._state.next_offset
        latest = self._state.epochs.latest if self._state.epochs else None
        behind = self._unsynced  # the end was not synced, and what speaks of it was
        for what, offset, severity in (
            ("recovery point", known.recovery_point, Severity.DAMAGE),
            ("log start offset", known.log_start_offset, behind),
            ("cleaned offset", known.cleaned_offset, behind),
            ("high watermark", known.high_watermark, behind),
            ("start of the latest leader epoch", latest.start_offset if latest else None, behind),
        ):
            if offset is not None and offset > end:
                self._report.add(severity, self._directory, f"the {what} is {offset}, and the log ends at {end}")
        if known.clean and known.recovery_point is not None and known.recovery_point < end:
            message = f"the log was closed at offset {known.recovery_point}, and ends at {end}"
            self._report.add(Severity.DAMAGE, self._directory, message)


# -- single files


def verify_file(path: Path, kind: Kind, report: Report, depth: Depth, files: FileSystem) -> None:
    """One file, beside its log if it has one there."""
    try:
        match kind:
            case Kind.EPOCHS:
                _read_epochs(path, Severity.DAMAGE, report, files)
            case Kind.METADATA:
                _check_metadata(path, report, files)
            case Kind.PRODUCERS:
                check_snapshot(path, Severity.DAMAGE, report, files)
            case Kind.LOG | Kind.RAFT_SNAPSHOT:
                verify_log_alone(path, files.size_of(path) or 0, report, depth, files)
            case _:
                _verify_index_alone(path, kind, report, files)
    except OSError as error:
        report_error(path, error, report)


def verify_log_alone(path: Path, size_bytes: int, report: Report, depth: Depth, files: FileSystem) -> None:
    base_offset = names.offset_in(path.name) if names.raft_snapshot_epoch_in(path.name) is None else 0
    segment = SegmentFiles(base_offset, path, size_bytes, None, None, None, _following(path, files))
    SegmentVerifier(segment, LogState(next_offset=base_offset), report, files, depth).run()


def _following(path: Path, files: FileSystem) -> int | None:
    """The base offset of the next segment in the directory; None if there is none, or the file is not of a segment."""
    if names.kind_of(path.name) is not Kind.LOG:
        return None
    logs = (name for name in files.sizes_in(path.parent) if names.kind_of(name) is Kind.LOG)
    return min(
        (offset for name in logs if (offset := names.offset_in(name)) > names.offset_in(path.name)), default=None
    )


def _verify_index_alone(path: Path, kind: Kind, report: Report, files: FileSystem) -> None:
    suffix = path.name.removeprefix(names.without_leftover_suffix(path.name))
    base_offset = names.offset_in(path.name)
    log = path.with_name(f"{base_offset:020d}{Kind.LOG.value}{suffix}")
    size_bytes = files.size_of(path) or 0
    log_bytes = files.size_of(log)
    if log_bytes is None:
        report.add(Severity.NOTE, path, "its log is not beside it: only the entries themselves were looked at")
        check_order(path, kind, size_bytes, report, files)
        return
    segment = SegmentFiles(
        base_offset,
        log,
        log_bytes,
        (path, size_bytes) if kind is Kind.OFFSET_INDEX else None,
        (path, size_bytes) if kind is Kind.TIME_INDEX else None,
        path if kind is Kind.TXN_INDEX else None,
        _following(log, files),
    )
    SegmentVerifier(segment, LogState(next_offset=base_offset), report, files, SHALLOW).run()


def check_snapshot(path: Path, severity: Severity, report: Report, files: FileSystem) -> None:
    offset = names.offset_in(path.name)
    try:
        producers = Producers.from_snapshot(read_small(path, files), path)
    except (StorageError, OSError) as error:
        report_error(path, error, report, severity)
        return
    for view in producers.views():
        if max(view.last_data_offset, view.transaction_start) >= offset:
            message = f"producer {view.producer_id} has written up to {view.last_data_offset}, and the log ended before"
            report.add(severity, path, message)


def _read_epochs(path: Path, severity: Severity, report: Report, files: FileSystem) -> LeaderEpochs | None:
    try:
        return LeaderEpochs.decode(read_small(path, files), path)
    except (StorageError, OSError) as error:
        report_error(path, error, report, severity)
        return None


def _check_metadata(path: Path, report: Report, files: FileSystem) -> None:
    try:
        read_metadata(path, files)
    except (StorageError, OSError) as error:
        report_error(path, error, report)
