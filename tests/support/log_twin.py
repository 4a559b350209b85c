"""A log as a plain list of batches. Every question is answered by looking at all of it.

Batches that were deleted at the front stay in the list (`start` says what is left): producers outlive their records."""

from typing import NamedTuple

from pylog.storage.records import Record
from pylog.storage.transactions import Marker

BATCHES_KNOWN = 5


class TwinBatch(NamedTuple):
    records: list[Record]  # with their offsets
    size_bytes: int
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    marker: Marker | None = None

    @property
    def base_offset(self) -> int:
        return self.records[0].offset

    @property
    def last_offset(self) -> int:
        return self.records[-1].offset

    @property
    def last_sequence(self) -> int:
        return self.sequence + len(self.records) - 1


class Transaction(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int | None
    aborted: bool


class LogTwin:
    def __init__(self) -> None:
        self.batches: list[TwinBatch] = []
        self.start = 0
        self.high_watermark = 0
        self._empty_end = 0  # where an empty log goes on

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self._empty_end

    # -- changes

    def truncate_to(self, offset: int) -> None:
        if offset >= self.end:
            return
        first = self.batches[0].base_offset if self.batches else self._empty_end
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        if not self.batches:
            self._empty_end = first
        self.start = min(self.start, self.end)
        self.high_watermark = max(min(self.high_watermark, self.end), self.start)

    def begin_anew_at(self, offset: int) -> None:
        self.batches = []
        self._empty_end = self.start = self.high_watermark = offset

    # -- what a reader sees

    def left(self) -> list[TwinBatch]:
        """The batches of which something is left."""
        return [batch for batch in self.batches if batch.last_offset >= self.start]

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records if record.offset >= self.start]

    def at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        found = [record for record in self.records() if record.timestamp_ms >= timestamp_ms]
        return (found[0].timestamp_ms, found[0].offset) if found else None

    def latest(self) -> tuple[int, int] | None:
        times = [record.timestamp_ms for record in self.records() if record.timestamp_ms >= 0]
        return self.at_time(max(times)) if times else None

    def epochs(self) -> list[tuple[int, int]]:
        entries: list[tuple[int, int]] = []
        for batch in self.batches:
            if not entries or batch.leader_epoch > entries[-1][0]:
                entries.append((batch.leader_epoch, batch.base_offset))
        older = [entry for entry in entries if entry[1] <= self.start]
        newer = [entry for entry in entries if entry[1] > self.start]
        return [(older[-1][0], self.start), *newer] if older else newer

    # -- producers and their transactions

    def transactions(self) -> list[Transaction]:
        opened: dict[int, int] = {}
        found: list[Transaction] = []
        for batch in self.batches:
            if batch.marker is not None:
                first = opened.pop(batch.producer_id, None)
                if first is not None:
                    found.append(Transaction(batch.producer_id, first, batch.base_offset, not batch.marker.commit))
            elif batch.transactional:
                opened.setdefault(batch.producer_id, batch.base_offset)
        return found + [Transaction(producer_id, first, None, False) for producer_id, first in opened.items()]

    def last_stable_offset(self) -> int:
        unstable = [
            transaction.first_offset
            for transaction in self.transactions()
            if transaction.marker_offset is None or transaction.marker_offset >= self.high_watermark
        ]
        return max(min([self.high_watermark, *unstable]), self.start)

    def aborted(self, start: int, end: int) -> set[tuple[int, int, int]]:
        return {
            (transaction.producer_id, transaction.first_offset, transaction.marker_offset)
            for transaction in self.transactions()
            if transaction.aborted
            and transaction.marker_offset is not None
            and transaction.marker_offset >= start
            and transaction.first_offset < end
        }

    def open_transaction(self, producer_id: int) -> bool:
        return any(
            transaction.producer_id == producer_id and transaction.marker_offset is None
            for transaction in self.transactions()
        )

    def epoch_of(self, producer_id: int) -> int:
        return max((batch.producer_epoch for batch in self.batches if batch.producer_id == producer_id), default=-1)

    def known_batches(self, producer_id: int) -> list[TwinBatch]:
        """Of its present epoch, the newest last."""
        epoch = self.epoch_of(producer_id)
        return [
            batch
            for batch in self.batches
            if batch.producer_id == producer_id and batch.producer_epoch == epoch and batch.marker is None
        ][-BATCHES_KNOWN:]
