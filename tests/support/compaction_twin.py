"""Compaction as one would write it down: lists of records, every question answered by looking at all of the log.

It knows nothing of the cleaner's passes over transactions: whether a record was aborted is told by the next marker of
its producer, wherever in the log that stands."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from pylog.storage.batch import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, walk
from pylog.storage.compaction import CleaningPlan, grouped
from pylog.storage.errors import DedupeBufferTooSmall
from pylog.storage.records import Record, decode_batch
from pylog.storage.transactions import AbortedTransaction, read_marker

KEPT_OF_EMPTY = 0x38  # of the attributes


class TwinBatch(NamedTuple):
    header: BatchHeader
    records: list[Record]
    data: bytes

    @property
    def facts(self) -> tuple[object, ...]:
        """Everything but the bytes: length and CRC depend on how well a library compresses."""
        return *self.header._replace(length=0, crc=0), *self.records

    @property
    def commits(self) -> bool | None:
        """Of a marker; None for all other batches."""
        marker = read_marker(self.data) if self.header.is_control else None
        return None if marker is None else marker.commit


class TwinSegment(NamedTuple):
    base_offset: int
    batches: list[TwinBatch]
    aborted: list[AbortedTransaction]


class TwinResult(NamedTuple):
    segments: list[TwinSegment]
    cleaned_until: int
    tombstones_left: int


def batches_of(data: bytes) -> list[TwinBatch]:
    found = []
    for position, header in walk(data):
        whole = data[position : position + header.size_bytes]
        found.append(TwinBatch(header, decode_batch(whole), whole))
    assert sum(len(batch.data) for batch in found) == len(data)
    return found


def is_aborted(log: Sequence[TwinBatch], batch: TwinBatch) -> bool:
    if not batch.header.is_transactional or batch.header.is_control:
        return False
    for later in log:
        if later.header.base_offset > batch.header.base_offset and later.header.producer_id == batch.header.producer_id:
            commits = later.commits
            if commits is not None:
                return not commits
    return False


def has_batches(log: Sequence[TwinBatch], marker: TwinBatch) -> bool:
    """Whether the log holds anything of the transaction that this marker ends."""
    seen = False
    for batch in log:
        if batch.header.base_offset >= marker.header.base_offset:
            return seen
        if batch.header.producer_id == marker.header.producer_id:
            if batch.commits is not None:
                seen = False
            elif batch.header.is_transactional and not batch.header.is_control:
                seen = True
    return seen


def compacted(plan: CleaningPlan, segments: Sequence[Sequence[TwinBatch]], log: Sequence[TwinBatch]) -> TwinResult:
    """`segments` are those of the plan, `log` is all of it."""
    keys_max = int(plan.dedupe_buffer_bytes // 24 * 0.9)
    latest, cleaned_until = latest_offsets(plan, list(chain.from_iterable(segments)), log, keys_max)
    tombstones = 0
    new = []
    for numbers in grouped(plan, cleaned_until):
        old = [batch for number in numbers for batch in segments[number]]
        kept: list[TwinBatch] = []
        aborted = []
        for batch in old:
            if batch.commits is False and has_batches(log, batch):
                aborted += [entry for entry in plan.aborted if entry.last_offset == batch.header.base_offset]
            result = batch if batch.header.last_offset >= cleaned_until else cleaned(plan, batch, latest, log)
            if batch.header.last_offset < cleaned_until and not batch.header.is_control:
                tombstones += sum(record.value is None for record in result.records)
            if result.records or batch is old[-1] or batch is result or is_last_of_producer(plan, batch):
                kept.append(result)
        new.append(TwinSegment(plan.segments[numbers[0]][0], kept, aborted))
    return TwinResult(new, cleaned_until, tombstones)


def latest_offsets(
    plan: CleaningPlan, batches: Sequence[TwinBatch], log: Sequence[TwinBatch], keys_max: int
) -> tuple[dict[bytes, int], int]:
    latest: dict[bytes, int] = {}
    for batch in batches:
        if batch.header.last_offset < plan.first_dirty_offset or batch.header.is_control or is_aborted(log, batch):
            continue
        for record in batch.records:
            if record.key is not None:
                if record.key not in latest and len(latest) >= keys_max:
                    if batch.header.base_offset <= plan.first_dirty_offset:
                        raise DedupeBufferTooSmall
                    return latest, batch.header.base_offset
                latest[record.key] = record.offset
    return latest, plan.end_offset


def is_last_of_producer(plan: CleaningPlan, batch: TwinBatch) -> bool:
    for last in plan.producers:
        if last.producer_id == batch.header.producer_id:
            if last.last_data_offset >= 0:
                return last.last_data_offset == batch.header.last_offset
            return batch.header.is_control and batch.header.producer_epoch == last.producer_epoch
    return False


def cleaned(plan: CleaningPlan, batch: TwinBatch, latest: dict[bytes, int], log: Sequence[TwinBatch]) -> TwinBatch:
    """The very same object if nothing changes."""
    header = batch.header
    horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON else None
    passed = horizon_ms is not None and horizon_ms <= plan.now_ms
    waits = False  # something in this batch goes once its horizon has passed
    if header.is_control:
        # control records of other kinds are nobody's to remove
        waits = batch.commits is not None and not has_batches(log, batch)
        records = [] if waits and passed else batch.records
    elif is_aborted(log, batch):
        records = []
    else:
        records = [record for record in batch.records if stays(record, latest, passed)]
        waits = any(record.value is None for record in records)
    if not records:
        return emptied(batch)
    if records == batch.records and not (waits and horizon_ms is None):
        return batch
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if waits and horizon_ms is None:
        attributes, base_timestamp = attributes | DELETE_HORIZON, plan.now_ms + plan.delete_retention_ms
    max_timestamp = header.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        max_timestamp = max(-1, *(record.timestamp_ms for record in records))
    header = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    return TwinBatch(header, records, b"")


def stays(record: Record, latest: dict[bytes, int], horizon_passed: bool) -> bool:
    if record.key is None or record.offset < latest.get(record.key, -1):
        return False
    return record.value is not None or not horizon_passed


def emptied(batch: TwinBatch) -> TwinBatch:
    attributes = batch.header.attributes & KEPT_OF_EMPTY
    return TwinBatch(batch.header._replace(attributes=attributes, base_timestamp=-1, record_count=0), [], b"")


def committed_records(log: Sequence[TwinBatch], aborted: Sequence[AbortedTransaction]) -> Iterator[Record]:
    """What a consumer with `read_committed` sees, who knows aborted transactions by their index only."""
    coming = sorted(aborted, key=lambda entry: entry.first_offset)
    aborting: set[int] = set()
    for batch in log:
        while coming and coming[0].first_offset <= batch.header.last_offset:
            aborting.add(coming.pop(0).producer_id)
        if batch.header.is_control:
            if batch.commits is False:
                aborting.discard(batch.header.producer_id)
        elif not (batch.header.attributes & TRANSACTIONAL and batch.header.producer_id in aborting):
            yield from batch.records


def state_of(records: Iterator[Record]) -> dict[bytes, bytes]:
    """The table that the log stands for: the latest value of every key; a tombstone is no value."""
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.key is not None:
            state.pop(record.key, None)
            if record.value is not None:
                state[record.key] = record.value
    return state
