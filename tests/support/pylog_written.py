"""Partition folders that we write: what goes into them, kept beside the log as a plain list of what must be read.

A bit of everything that the format has: codecs, headers, nulls, timestamps of both kinds, sequences that wrap,
transactions that are committed, aborted and open, leader epochs, deleted, truncated and compacted records."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from pylog.storage.batch import NO_TIMESTAMP, TRANSACTIONAL
from pylog.storage.compaction import CleaningPlan, CleaningResult
from pylog.storage.kernels.cleaner import clean
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from pylog.storage.records import Record, encode_batch
from pylog.storage.transactions import Marker, encode_marker

SMALL = LogConfig(segment_bytes=6_000, index_interval_bytes=600, retention_ms=-1)
COMPACT = replace(SMALL, compact=True, delete=False, dirty_ratio_min=0.0)
COMPACTED = {"compacted": COMPACT, "tombstones-gone": replace(COMPACT, delete_retention_ms=0)}
CONFIGS = {
    "codecs": SMALL,
    "append-time": replace(SMALL, log_append_time=True),
    "sequences": SMALL,
    "transactions": SMALL,
    "deleted": SMALL,
    "truncated": SMALL,
    "empty": SMALL,
    **COMPACTED,
}

# Producers: of "sequences", and of "transactions", where the last one never ends its transaction.
STEADY, OLD, WRAPPING = 9001, 9002, 9003
COMMITTING, ABORTING, OPEN = 9101, 9102, 9103
PRODUCER_EPOCH = 2
COORDINATOR_EPOCH = 0
_SEQUENCE_MAX = 2**31 - 1
_NO_OFFSET = 2**63  # behind all


@dataclass
class Told:
    """A log, and all that was appended to it."""

    log: PartitionLog
    start_ms: int
    records: list[Record] = field(default_factory=list)
    leader_epoch: int = 0
    sequences: dict[int, int] = field(default_factory=lambda: {WRAPPING: _SEQUENCE_MAX - 20})  # the next ones
    _number: int = 0  # of the batch
    _open: dict[int, list[int]] = field(default_factory=dict)  # producer id -> offsets
    _aborted: set[int] = field(default_factory=set)

    @property
    def committed(self) -> list[Record]:
        unstable = min((offsets[0] for offsets in self._open.values()), default=_NO_OFFSET)
        return [record for record in self.records if record.offset < unstable and record.offset not in self._aborted]

    def append(self, count: int, producer_id: int = -1, *, transactional: bool = False) -> None:
        """One batch, codec by codec, its timestamps not in order."""
        number = self._number = self._number + 1
        records = [
            Record(
                n,
                self.start_ms + number * 100 + n * 7 % 50,
                None if n % 5 == 4 and not self.log.config.compact else b"key-%d" % n,
                None if n % 7 == 6 else b"batch %d, record %d;" % (number, n) * (n % 4),
                (("number", b"%d" % number), ("none", None), ("empty", b"")) if n % 3 == 0 else (),
            )
            for n in range(count)
        ]
        sequence = self.sequences.get(producer_id, 0)
        batch = encode_batch(
            records,
            codec=number % 5,
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=producer_id,
            producer_epoch=PRODUCER_EPOCH if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
        )
        appended = self.log.append(batch, self.leader_epoch)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.sequences[producer_id] = (sequence + count) & _SEQUENCE_MAX
        if transactional:
            self._open.setdefault(producer_id, []).extend(range(appended.base_offset, appended.last_offset + 1))
        for record in records:
            time_ms = appended.log_append_time_ms
            self.records.append(
                record._replace(
                    offset=appended.base_offset + record.offset,
                    timestamp_ms=record.timestamp_ms if time_ms == NO_TIMESTAMP else time_ms,
                )
            )

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = Marker(commit, COORDINATOR_EPOCH)
        batch = encode_marker(producer_id, PRODUCER_EPOCH, marker, self.start_ms + self._number * 100)
        self.log.append(batch, self.leader_epoch)
        self.log.advance_high_watermark(self.log.log_end_offset)
        offsets = self._open.pop(producer_id)
        if not commit:
            self._aborted.update(offsets)

    def compact(self, cleaned_until: int) -> None:
        """Below that the latest record of a key is left, if it was not aborted."""
        candidates = [record for record in self.committed if record.offset < cleaned_until]
        latest = {record.key: record.offset for record in candidates}
        kept = [record for record in candidates if latest[record.key] == record.offset]
        if self.log.config.delete_retention_ms == 0:
            kept = [record for record in kept if record.value is not None]
        self.records = kept + [record for record in self.records if record.offset >= cleaned_until]

    def forget(self, *, below: int = 0, behind: int | None = None) -> None:
        """Records were deleted at the front, or truncated at the end."""
        end = self.log.log_end_offset if behind is None else behind
        self.records = [record for record in self.records if below <= record.offset < end]


class _CleanerHere:
    """In this process, which has the kernels loaded; elsewhere it is a process of its own."""

    def __init__(self, plan: CleaningPlan) -> None:
        self._plan = plan

    def wait(self) -> CleaningResult:
        return clean(self._plan)

    def stop(self) -> None: ...


def manager_of(data: Path) -> LogManager:
    return LogManager([data], SMALL, start_cleaner=_CleanerHere)


def compact(told: Told, manager: LogManager) -> None:
    """As often as it takes to be rid of tombstones whose time has come: the first run sets the time."""
    for _ in range(3):
        told.append(1)
        told.log.roll()
        while (job := manager.next_compaction()) is not None:
            assert job.run()
    told.compact(told.log.segments()[-1].base_offset)


def fill(topic: str, told: Told, manager: LogManager) -> None:
    """In the leader epochs 0 and 1; the transaction of `OPEN` stays open."""
    if topic == "empty":
        return
    for epoch in (0, 1):
        told.leader_epoch = epoch
        if topic == "sequences":
            _fill_sequences(told)
        elif topic == "transactions" or topic in COMPACTED:
            _fill_transactions(told)
        else:
            for count in range(1, 25):
                told.append(count)
        if topic == "truncated" and epoch == 0:
            manager.truncate_to(topic, 0, 130)  # in a batch, which goes whole
            told.forget(behind=told.log.log_end_offset)
            assert told.log.log_end_offset == 120
    if topic == "transactions":
        told.append(5, OPEN, transactional=True)
        told.append(2)
        told.append(3, COMMITTING, transactional=True)
        told.end(COMMITTING, commit=True)  # behind the open one: not stable yet
    if topic in COMPACTED:
        compact(told, manager)
        told.append(12)
        told.append(3, COMMITTING, transactional=True)
        told.end(COMMITTING, commit=True)
    if topic == "deleted":
        manager.delete_records(topic, 0, 333)
        told.forget(below=333)


def go_on(topic: str, told: Told) -> None:
    """Some more, in the leader epoch that the log has."""
    if topic == "empty":
        return
    latest = told.log.epochs.latest
    assert latest is not None
    told.leader_epoch = latest.epoch
    for count in (3, 9, 1, 20, 14):
        told.append(count)
        if topic == "sequences":
            told.append(count, STEADY)
        if topic == "transactions" or topic in COMPACTED:
            told.append(count, ABORTING, transactional=True)
            told.append(2, COMMITTING, transactional=True)
            told.end(COMMITTING, commit=True)
            told.end(ABORTING, commit=False)


def _fill_sequences(told: Told) -> None:
    for count in range(1, 20):
        told.append(count, STEADY)
        if told.leader_epoch == 0:
            told.append(2, OLD)
        told.append(3, WRAPPING)


def _fill_transactions(told: Told) -> None:
    for count in range(1, 12):
        told.append(count, COMMITTING, transactional=True)
        told.append(2)
        if count % 2:  # over two rounds of the other one
            told.append(3, ABORTING, transactional=True)
        else:
            told.append(4, ABORTING, transactional=True)
            told.end(ABORTING, commit=count % 8 == 0)
        told.end(COMMITTING, commit=count % 5 != 0)
    told.end(ABORTING, commit=False)
