"""One segment, batch after batch, with everything that can be compared with it on the way.

A bad batch is held back until it is known what follows. Where nothing good does, and the segment was being written,
it is a torn tail: a write that a stop cut short, promised to nobody. Anywhere else it is damage.
"""

from dataclasses import dataclass
from pathlib import Path

from pylog.storage.batch import NO_TIMESTAMP, BatchHeader
from pylog.storage.checkpoints import INT64_MAX
from pylog.storage.epochs import LeaderEpochs
from pylog.storage.index import INT32_MAX
from pylog.storage.inspect.aborts import AbortedCheck
from pylog.storage.inspect.batches import Batch, BatchWalk, Hole
from pylog.storage.inspect.deep import Depth, records_problem
from pylog.storage.inspect.findings import PER_FILE_MAX, Report, Severity
from pylog.storage.inspect.indexes import OffsetIndexCheck, TimeIndexCheck
from pylog.storage.inspect.names import Kind
from pylog.storage.inspect.state import LogState, Place
from pylog.storage.ports import FileSystem


@dataclass(frozen=True)
class SegmentFiles:
    base_offset: int
    log: Path
    log_bytes: int
    index: tuple[Path, int] | None
    time_index: tuple[Path, int] | None
    txn_index: Path | None  # which need not be there
    end_offset: int | None  # where the next segment begins; None for the last one

    @property
    def last(self) -> bool:
        return self.end_offset is None


class SegmentVerifier:
    """Use `run` once."""

    def __init__(self, segment: SegmentFiles, state: LogState, report: Report, files: FileSystem, depth: Depth) -> None:
        self._segment = segment
        self._state = state
        self._report = report
        self._files = files
        self._depth = depth
        self._bad: list[Batch | Hole] = []
        self._gap: tuple[int, int, int] | None = None  # (position, first, last) of the first one
        self._gap_count = 0

    def run(self) -> None:
        segment, state, report = self._segment, self._state, self._report
        place = self._place()
        checks: list[OffsetIndexCheck | TimeIndexCheck] = []
        if segment.index is not None:
            checks.append(OffsetIndexCheck(*segment.index, place, report, self._files))
        if segment.time_index is not None:
            checks.append(TimeIndexCheck(*segment.time_index, place, report, self._files))
        aborted = AbortedCheck(segment.txn_index, state, place, report, self._files)
        walk = BatchWalk(self._files.open(segment.log), segment.log_bytes, segment.base_offset)
        for batch in walk:
            for check in checks:
                check.see(batch)
            if isinstance(batch, Hole) or not batch.crc_is_right:
                if len(self._bad) < PER_FILE_MAX:
                    self._bad.append(batch)
                continue
            self._report_bad(batch.header.base_offset)
            self._see(batch, walk, aborted)
        self._report_bad(None)
        self._report_gaps()
        for check in checks:
            check.finish()
        aborted.finish()
        report.segments += 1
        report.log_bytes += segment.log_bytes

    def _place(self) -> Place:
        """After an unclean stop the indexes are built anew from the recovery point on; also those of the segment that
        ends there, for they may have been stored after the log was synced."""
        segment, state = self._segment, self._state
        behind = segment.end_offset is None or (state.torn_from is not None and segment.end_offset >= state.torn_from)
        torn = not state.clean and behind
        return Place(
            segment.base_offset,
            complete=not torn,
            severity=Severity.TORN if torn and state.torn_from is not None else Severity.DAMAGE,
            end_severity=Severity.TORN if torn else Severity.DAMAGE,
        )

    def _see(self, batch: Batch, walk: BatchWalk, aborted: "AbortedCheck") -> None:
        header, state = batch.header, self._state
        self._report.batches += 1
        self._report.records += header.record_count
        problem = batch.problem or self._misplaced(header)
        if problem is None and self._depth.records:
            data = batch.data if batch.data is not None else walk.read(batch.position, header.size_bytes)
            problem = records_problem(data, header, self._depth.look)
        if problem is not None:
            self._damage(batch, problem)
        if header.base_offset > state.next_offset:
            self._note_gap(batch)
        elif header.record_count <= header.last_offset_delta:
            state.compacted = True
        state.interrupted = False
        state.next_offset = header.next_offset  # also if it went back: the next one is compared with its neighbour
        state.leader_epoch = max(state.leader_epoch, header.leader_epoch)
        if header.is_transactional or header.is_control or aborted.waits_for(header):
            data = batch.data if batch.data is not None else walk.read(batch.position, header.size_bytes)
            aborted.see(header, data)

    def _misplaced(self, header: BatchHeader) -> str | None:
        """What cannot be about an intact batch in this place."""
        state, base_offset = self._state, self._segment.base_offset
        offset_min, offset_max = max(state.next_offset, base_offset), base_offset + INT32_MAX
        if not offset_min <= header.base_offset <= header.last_offset <= offset_max:
            return f"these offsets cannot follow: {offset_min} to {offset_max} can"
        if header.max_timestamp < NO_TIMESTAMP:
            return f"the maximum timestamp is {header.max_timestamp}"
        if header.leader_epoch < -1 or 0 <= header.leader_epoch < state.leader_epoch:
            return f"leader epoch {header.leader_epoch} follows {state.leader_epoch}"
        return self._epoch_problem(header, state.epochs) if state.epochs is not None else None

    def _epoch_problem(self, header: BatchHeader, epochs: LeaderEpochs) -> str | None:
        """What leader-epoch-checkpoint says otherwise. What is below the start of the log it has forgotten."""
        state, offset = self._state, header.base_offset
        latest = epochs.latest
        if header.leader_epoch < 0 or offset < state.log_start_offset or latest is None:
            return None
        if header.leader_epoch > latest.epoch and state.may_be_torn(offset, last_segment=self._segment.last):
            return None  # a stop came between the two, and the next start adds it
        epoch = epochs.epoch_for(offset)
        if epoch is None:
            if state.clean and header.leader_epoch > epochs.entries[0].epoch:
                return f"leader epoch {header.leader_epoch}, and leader-epoch-checkpoint begins later with an older one"
            if state.clean and not state.epochs_begin_late:
                # Kafka forgets the epochs of deleted records a minute before it puts their deletion on record.
                state.epochs_begin_late = True
                message = "leader-epoch-checkpoint begins later; records whose deletion was lost come back like this"
                self._report.add(Severity.NOTE, self._segment.log, message, first_offset=offset)
            return None
        if epoch != header.leader_epoch:
            return f"leader epoch {header.leader_epoch}, where leader-epoch-checkpoint has {epoch}"
        begins = header.leader_epoch > state.leader_epoch >= 0 and not state.compacted and not state.interrupted
        if begins and epochs.epoch_for(offset - 1) == epoch:
            return f"leader epoch {epoch} begins here, and earlier in leader-epoch-checkpoint"
        return None

    def _damage(self, batch: Batch, message: str) -> None:
        self._report.add(
            Severity.DAMAGE,
            self._segment.log,
            message,
            position=batch.position,
            first_offset=batch.header.base_offset,
            last_offset=batch.header.last_offset,
        )

    def _report_bad(self, good_offset: int | None) -> None:
        """What was held back, now that it is known where good batches go on; None if they do not."""
        if not self._bad:
            return
        state, segment = self._state, self._segment
        torn = state.may_be_torn(state.next_offset, last_segment=segment.last)
        if torn and (good_offset is None or state.torn_from is not None):
            first, end = self._bad[0], segment.log_bytes
            behind = "" if good_offset is None else "; good batches follow and would be cut off too"
            self._report.add(
                Severity.TORN,
                segment.log,
                f"{end - first.position} bytes would be cut at the next start: {first.problem}{behind}",
                position=first.position,
                first_offset=max(state.next_offset, segment.base_offset),
            )
        else:
            for bad in self._bad:
                self._report_damage(bad)
        self._bad.clear()
        # the offsets that are missing here have been reported, and are no gap besides
        state.interrupted = True
        state.next_offset = max(state.next_offset, good_offset or segment.end_offset or 0)

    def _report_damage(self, bad: Batch | Hole) -> None:
        if isinstance(bad, Batch):
            self._damage(bad, bad.problem or "")
            return
        self._report.add(
            Severity.DAMAGE,
            self._segment.log,
            f"{bad.size_bytes} bytes are no batch: {bad.problem}",
            position=bad.position,
            first_offset=max(self._state.next_offset, self._segment.base_offset),
        )

    def _note_gap(self, batch: Batch) -> None:
        first, last = self._state.next_offset, batch.header.base_offset - 1
        self._state.compacted = True
        if self._state.cleaned_offset is not None and last < self._state.cleaned_offset:
            return
        self._gap = self._gap or (batch.position, first, last)
        self._gap_count += 1

    def _report_gaps(self) -> None:
        """Compaction leaves gaps, and nobody keeps a list of them: worth a word where it is not known to have run."""
        if self._gap is None:
            return
        position, first, last = self._gap
        more = f", and {self._gap_count - 1} gaps more" if self._gap_count > 1 else ""
        message = f"the log does not have these offsets{more}; compaction leaves such gaps"
        self._report.add(
            Severity.NOTE, self._segment.log, message, position=position, first_offset=first, last_offset=last
        )


def check_order(path: Path, kind: Kind, size_bytes: int, report: Report, files: FileSystem) -> None:
    """The entries of an index, without the log that they speak of."""
    base_offset = int(path.name[:20])
    place = Place(base_offset, complete=False, severity=Severity.DAMAGE, end_severity=Severity.TORN)
    match kind:
        case Kind.OFFSET_INDEX:
            OffsetIndexCheck(path, size_bytes, place, report, files).finish_alone()
        case Kind.TIME_INDEX:
            TimeIndexCheck(path, size_bytes, place, report, files).finish_alone()
        case _:
            AbortedCheck(path, LogState(next_offset=INT64_MAX), place, report, files).finish()
