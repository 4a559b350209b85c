"""What one partition has promised, told plainly: all batches that were appended to it, and what crashes may take.

- A crash of the process takes nothing that was acknowledged. Of an append under way some first batches may stay.
- A crash of the machine may also take the newest batches, as far back as the last flush that has returned.
- What was deleted or truncated stays so, in both; while it is under way it has happened or not.

So after a crash the log holds some first batches of the history, to the byte, and begins where it was told to.
`outcomes` lists the histories that can be meant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from uuid import UUID

from pylog.storage.batch import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader, walk
from pylog.storage.epochs import EpochEntry, LeaderEpochs
from pylog.storage.log_config import LogConfig
from pylog.storage.producers import Producers, ProducerView
from pylog.storage.records import decode_batch
from pylog.storage.transactions import AbortedTransaction, Marker, read_marker


@dataclass(frozen=True)
class TwinBatch:
    header: BatchHeader
    data: bytes

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        return self.header.next_offset

    @cached_property
    def marker(self) -> Marker | None:
        return read_marker(self.data) if self.header.is_control else None

    @cached_property
    def times(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of its records."""
        return [(record.timestamp_ms, record.offset) for record in decode_batch(self.data)]


def batches_in(data: bytes | bytearray) -> list[TwinBatch]:
    return [TwinBatch(header, bytes(data[at : at + header.size_bytes])) for at, header in walk(data)]


def up_to(end_offset: int, batches: Iterable[TwinBatch]) -> list[TwinBatch]:
    return [batch for batch in batches if batch.next_offset <= end_offset]


@dataclass(frozen=True)
class Compacted:
    """The batches of the offsets from `base_offset` to before `next_offset` became these."""

    base_offset: int
    next_offset: int
    batches: list[TwinBatch]

    def put_into(self, batches: Sequence[TwinBatch]) -> list[TwinBatch]:
        before = [batch for batch in batches if batch.base_offset < self.base_offset]
        return [*before, *self.batches, *(batch for batch in batches if batch.base_offset >= self.next_offset)]


@dataclass(frozen=True)
class Outcome:
    """Some first of these batches, at least up to `end_min`, are there, and what is below `start` is deleted."""

    batches: Sequence[TwinBatch]
    past: Sequence[TwinBatch]  # the same before they were compacted
    origin: int  # the next offset of the log when it had no batches
    start: int
    end_min: int

    def allows(self, start: int, end_offset: int) -> bool:
        if start != self.start or end_offset < self.end_min or end_offset < start:
            return False
        if end_offset in {self.origin, *(batch.next_offset for batch in self.batches)}:
            return True
        return end_offset == start  # all that was left of it was deleted already: the log goes on where it begins

    def __str__(self) -> str:
        ends = [self.origin, *(batch.next_offset for batch in self.batches)]
        return f"from {self.start} to one of {[end for end in ends if end >= self.end_min]}"


@dataclass
class Twin:
    """One partition of one topic id."""

    topic_id: UUID
    config: LogConfig
    batches: list[TwinBatch] = field(default_factory=list)
    past: list[TwinBatch] = field(default_factory=list)  # the same before they were compacted
    origin: int = 0
    start: int = 0
    flushed: int = 0
    machine_crashed: bool = False  # and nobody has looked at the log since
    # What may not be gone from the disk before the next flush, though the log goes on without it: what a truncation was
    # about to drop when the process stopped, and the first batches of an append that the disk had no room for.
    ghosts: list[Outcome] = field(default_factory=list)
    # The operation under way, if any.
    appending: bytearray | None = None  # gets its offsets before anything is written
    starting_at: int | None = None
    truncating_to: int | None = None  # where a batch begins
    emptying_at: int | None = None
    deleting: bool = False
    compacting: list[Compacted] = field(default_factory=list)  # take their places one after the other

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.origin

    @property
    def under_way(self) -> bool:
        operations = (self.appending, self.starting_at, self.truncating_to, self.emptying_at)
        return self.deleting or bool(self.compacting) or any(operation is not None for operation in operations)

    def outcomes(self, *, machine: bool) -> list[Outcome]:
        if machine or self.machine_crashed:
            starts = [self.start] if self.starting_at is None else [self.start, self.starting_at]
            return self._outcomes(self.flushed) + [
                replace(outcome, start=start, end_min=min(self.flushed, outcome.end_min))
                for ghost in self.ghosts
                for outcome in self._compacted_step_by_step(ghost)
                for start in starts
            ]
        return self._outcomes(self.end)

    def _outcomes(self, end_min: int) -> list[Outcome]:
        as_it_was = Outcome(self.batches, self.past, self.origin, self.start, end_min)
        if self.appending is not None:
            new = batches_in(self.appending)
            as_it_was = replace(as_it_was, batches=[*self.batches, *new], past=[*self.past, *new])
        if self.starting_at is not None:
            return [as_it_was, replace(as_it_was, start=self.starting_at)]
        if self.truncating_to is not None:
            end = self.truncating_to
            shorter = replace(as_it_was, end_min=min(end, end_min))  # segment by segment
            kept = up_to(end, self.batches)
            return [shorter, replace(shorter, batches=kept, past=up_to(end, self.past), start=min(self.start, end))]
        if self.emptying_at is not None:
            empty = Outcome([], [], self.emptying_at, self.emptying_at, self.emptying_at)
            return [replace(as_it_was, end_min=min(self.start, end_min)), empty]
        if self.deleting:
            return [as_it_was, Outcome([], [], 0, 0, 0)]
        return self._compacted_step_by_step(as_it_was)

    def _compacted_step_by_step(self, outcome: Outcome) -> list[Outcome]:
        outcomes = [outcome]
        for compacted in self.compacting:
            outcomes.append(replace(outcome, batches=compacted.put_into(outcomes[-1].batches)))
        return outcomes

    # -- what has happened

    def appended(self) -> None:
        assert self.appending is not None
        new = batches_in(self.appending)
        self.batches, self.past = [*self.batches, *new], [*self.past, *new]
        self.appending = None

    def refused(self) -> None:
        assert self.appending is not None
        new = batches_in(self.appending)
        ghost = Outcome([*self.batches, *new], [*self.past, *new], self.origin, self.start, self.end)
        self.ghosts = [*self.ghosts, ghost]
        self.appending = None

    def started(self) -> None:
        assert self.starting_at is not None
        self.start, self.starting_at = self.starting_at, None

    def truncated(self) -> None:
        assert self.truncating_to is not None
        end, self.truncating_to = self.truncating_to, None
        if end < self.end:  # else nothing was done; the segments before the last one are not synced by it
            self.ghosts = [
                replace(ghost, batches=up_to(end, ghost.batches), past=up_to(end, ghost.past)) for ghost in self.ghosts
            ]
        self.batches, self.past = up_to(end, self.batches), up_to(end, self.past)
        self.start = min(self.start, end)
        self.flushed = min(self.flushed, end)

    def emptied(self) -> None:
        assert self.emptying_at is not None
        self.batches, self.past = [], []
        self.origin = self.start = self.flushed = self.emptying_at
        self.emptying_at = None
        self.ghosts = []

    def compacted(self) -> None:
        for compacted in self.compacting:
            self.batches = compacted.put_into(self.batches)
        self.ghosts = [self._compacted_step_by_step(ghost)[-1] for ghost in self.ghosts]
        self.compacting = []

    def flushed_up_to(self, end_offset: int) -> None:
        self.flushed = end_offset
        self.ghosts = []

    def found(self, outcome: Outcome, end_offset: int) -> None:
        """The log was opened and is this. That much is seen now, and may not change again."""
        if self.machine_crashed:
            self.ghosts = []
        elif self.truncating_to is not None or self.emptying_at is not None:
            self.ghosts = [*self.ghosts, Outcome(self.batches, self.past, self.origin, self.start, end_offset)]
        self.batches, self.past = up_to(end_offset, outcome.batches), up_to(end_offset, outcome.past)
        self.origin, self.start = outcome.origin, outcome.start
        if self.end != end_offset:
            self.batches, self.past, self.origin = [], [], end_offset
        self.flushed = end_offset if self.machine_crashed else min(self.flushed, end_offset)
        self.appending = self.starting_at = self.truncating_to = self.emptying_at = None
        self.deleting = self.machine_crashed = False
        self.compacting = []


# -- what follows from the batches


@dataclass
class Replay:
    producers: dict[int, ProducerView]
    aborted: list[AbortedTransaction]
    open_since: int | None


def replay(batches: Iterable[TwinBatch]) -> Replay:
    producers = Producers()
    aborted = []
    for batch in batches:
        if batch.header.producer_id != NO_PRODUCER_ID:
            ended = producers.applied(batch.header, batch.marker)
            if ended is not None and ended.aborted:
                aborted.append(ended.index_entry())
    views = {view.producer_id: view for view in producers.views()}
    starts = [view.transaction_start for view in views.values() if view.transaction_start >= 0]
    return Replay(views, aborted, min(starts, default=None))


def epochs_of(batches: Iterable[TwinBatch], start: int) -> tuple[EpochEntry, ...]:
    epochs = LeaderEpochs()
    for batch in batches:
        epochs.assign(batch.header.leader_epoch, batch.base_offset)
    epochs.truncate_from_start(start)
    return epochs.entries


def first_at_time(batches: Iterable[TwinBatch], start: int, timestamp_ms: int) -> tuple[int, int] | None:
    times = (time for batch in batches for time in batch.times)
    return next((time for time in times if time[0] >= timestamp_ms and time[1] >= start), None)


def latest(batches: Iterable[TwinBatch], start: int) -> tuple[int, int] | None:
    times = [time for batch in batches for time in batch.times if time[1] >= start and time[0] != NO_TIMESTAMP]
    return max(times, key=lambda time: (time[0], -time[1]), default=None)


def latest_by_key(batches: Sequence[TwinBatch]) -> dict[bytes | None, bytes]:
    """What a reader of committed records knows in the end, which compaction must not change. Open transactions count
    as committed."""
    aborted = replay(batches).aborted
    known: dict[bytes | None, bytes] = {}
    for batch in batches:
        offset, producer_id = batch.base_offset, batch.header.producer_id
        dropped = any(entry[0] == producer_id and entry.first_offset <= offset < entry.last_offset for entry in aborted)
        if dropped or batch.header.is_control:
            continue
        for record in decode_batch(batch.data):
            if record.value is None:
                known.pop(record.key, None)
            else:
                known[record.key] = record.value
    return known


def index_entries(
    batches: Iterable[TwinBatch], base_offset: int, interval_bytes: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The offset index of a segment of these batches, and of its time index the entries that it must have."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    position = indexed_position = 0
    newest = (NO_TIMESTAMP, 0)
    for batch in batches:
        relative = batch.next_offset - 1 - base_offset
        if batch.header.latest_record_ms > newest[0]:
            newest = (batch.header.latest_record_ms, relative)
        if position - indexed_position > interval_bytes:
            offsets.append((relative, position))
            indexed_position = position
            if newest[0] > (times[-1][0] if times else NO_TIMESTAMP):
                times.append(newest)
        position += batch.header.size_bytes
    return offsets, times
