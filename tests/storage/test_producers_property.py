"""The state of producers against a plain list of all batches: every answer is computed by looking at all of them."""

from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pylog.storage.batch import CONTROL, TRANSACTIONAL, BatchHeader
from pylog.storage.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleProducerEpoch,
    StorageError,
    TransactionCoordinatorFenced,
)
from pylog.storage.producers import CompletedTransaction, Duplicate, Producers, ProducerView
from pylog.storage.transactions import Marker

SEQUENCES = 2**31
Answer = Duplicate | type[StorageError] | None
Event = tuple[BatchHeader, Marker | None]


@dataclass
class Twin:
    """The log, and what its reader has forgotten on purpose."""

    events: list[Event] = field(default_factory=list)
    forgotten: dict[int, int] = field(default_factory=dict)  # producer id -> number of the first event that counts
    snapshot_at: int = 0  # number of the first event that was not read from a snapshot
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return self.events[-1][0].next_offset if self.events else 0

    def history(self, producer_id: int) -> list[tuple[int, Event]]:
        first = self.forgotten.get(producer_id, 0)
        return [(n, e) for n, e in enumerate(self.events) if n >= first and e[0].producer_id == producer_id]

    def epoch(self, producer_id: int) -> int:
        history = self.history(producer_id)
        return history[-1][1][0].producer_epoch if history else -1

    def batches(self, producer_id: int) -> list[BatchHeader]:
        """Of the present epoch, those that are still remembered."""
        old: list[BatchHeader] = []
        new: list[BatchHeader] = []
        epoch = None
        for number, (header, _) in self.history(producer_id):
            if header.producer_epoch != epoch:
                epoch, old, new = header.producer_epoch, [], []
            if not header.is_control:
                (old if number < self.snapshot_at else new).append(header)
        return [*old[-1:], *new][-5:]

    def last_sequence(self, producer_id: int) -> int:
        batches = self.batches(producer_id)
        return last_sequence(batches[-1]) if batches else -1

    def coordinator_epoch(self, producer_id: int) -> int:
        markers = [marker for _, (_, marker) in self.history(producer_id) if marker]
        return markers[-1].coordinator_epoch if markers else -1

    def transactions(self) -> list[tuple[int, int, tuple[int, int] | None]]:
        """(producer id, first offset, (offset and number of its marker) or None) of every transaction of the log."""
        found: list[tuple[int, int, tuple[int, int] | None]] = []
        start: dict[int, int] = {}
        for number, (header, marker) in enumerate(self.events):
            producer_id = header.producer_id
            if marker and producer_id in start:
                found.append((producer_id, start.pop(producer_id), (header.base_offset, number)))
            elif not header.is_control and header.is_transactional and header.record_count:
                start.setdefault(producer_id, header.base_offset)
        return found + [(producer_id, first, None) for producer_id, first in start.items()]

    def open_transactions(self) -> dict[int, int]:
        return {producer_id: first for producer_id, first, end in self.transactions() if end is None}

    def first_unstable_offset(self) -> int | None:
        unstable = [
            first
            for _, first, end in self.transactions()
            if end is None or (end[0] >= self.high_watermark and end[1] >= self.snapshot_at)
        ]
        return min(unstable, default=None)

    def answer(self, header: BatchHeader) -> Answer:
        producer_id = header.producer_id
        epoch = self.epoch(producer_id)
        if header.producer_epoch < epoch:
            return StaleProducerEpoch
        if header.producer_epoch > epoch >= 0 and header.base_sequence != 0:
            return OutOfOrderSequence
        if header.producer_epoch == epoch:
            for kept in self.batches(producer_id):
                if (kept.base_sequence, last_sequence(kept)) == (header.base_sequence, last_sequence(header)):
                    return Duplicate(kept.base_offset, kept.last_offset, self.timestamp_of(kept))
            if header.base_sequence != (self.last_sequence(producer_id) + 1) % SEQUENCES:
                return OutOfOrderSequence
        if producer_id in self.open_transactions() and not header.is_transactional:
            return InvalidTransactionState
        return None

    def timestamp_of(self, batch: BatchHeader) -> int:
        """A snapshot has one timestamp for a producer and its last batch: that of the last it wrote, markers too."""
        history = self.history(batch.producer_id)
        number = next(n for n, (header, _) in history if header is batch)
        if number >= self.snapshot_at:
            return batch.max_timestamp
        return max(header.max_timestamp for n, (header, _) in history if n < self.snapshot_at)

    def view(self, producer_id: int) -> ProducerView:
        batches = self.batches(producer_id)
        return ProducerView(
            producer_id,
            self.epoch(producer_id),
            self.last_sequence(producer_id),
            batches[-1].last_offset if batches else -1,
            self.history(producer_id)[-1][1][0].max_timestamp,
            self.coordinator_epoch(producer_id),
            self.open_transactions().get(producer_id, -1),
        )

    def known(self) -> list[int]:
        return [producer_id for producer_id in PRODUCER_IDS if self.history(producer_id)]


def last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % SEQUENCES


PRODUCER_IDS = [1, 2, 3]
EXPIRATION_MS = 15  # also a single step

producer_ids = st.sampled_from(PRODUCER_IDS)
steps = st.sampled_from([0, 0, 0, 0, 1, 2, 15])
first_sequences = st.sampled_from([0, 7, SEQUENCES - 4, SEQUENCES - 1])
counts = st.sampled_from([1, 1, 2, 4])


class ProducersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.producers = Producers()
        self.twin = Twin()
        self.now_ms = 0

    def header(self, producer_id: int, epoch: int, sequence: int, count: int, attributes: int) -> BatchHeader:
        return BatchHeader(
            self.twin.end, 99, 0, 2, 0, attributes, count - 1, 0, self.now_ms, producer_id, epoch, sequence, count
        )

    def add(self, header: BatchHeader, marker: Marker | None = None) -> None:
        self.producers.applied(header, marker)
        self.twin.events.append((header, marker))

    def expect(self, header: BatchHeader) -> None:
        """The same answer as the twin's; appended if both take it."""
        try:
            answer: Answer = self.producers.check([header])
        except StorageError as error:
            answer = type(error)
        assert answer == self.twin.answer(header)
        assert answer is None or not self.producers.who_goes_on_with(header), "what is known at a glance is taken"
        if answer is None:
            self.add(header)

    @rule(
        producer_id=producer_ids,
        sizes=st.lists(counts, min_size=1, max_size=4),
        first=first_sequences,
        step=steps,
        in_transaction=st.booleans(),
    )
    def append_the_next(self, producer_id: int, sizes: list[int], first: int, step: int, in_transaction: bool) -> None:
        self.now_ms += step
        for count in sizes:
            epoch = max(self.twin.epoch(producer_id), 0)
            known = self.twin.history(producer_id)
            sequence = (self.twin.last_sequence(producer_id) + 1) % SEQUENCES if known else first
            transactional = in_transaction or producer_id in self.twin.open_transactions()
            header = self.header(producer_id, epoch, sequence, count, TRANSACTIONAL if transactional else 0)
            assert self.twin.answer(header) is None
            self.expect(header)

    @rule(
        producer_id=producer_ids,
        epoch=st.integers(0, 3),
        ahead=st.integers(-3, 3) | st.none(),
        count=counts,
        attributes=st.sampled_from([0, TRANSACTIONAL]),
    )
    def append_anything(self, producer_id: int, epoch: int, ahead: int | None, count: int, attributes: int) -> None:
        sequence = 0 if ahead is None else (self.twin.last_sequence(producer_id) + 1 + ahead) % SEQUENCES
        self.expect(self.header(producer_id, epoch, sequence, count, attributes))

    @precondition(lambda self: self.twin.events)
    @rule(data=st.data(), step=steps)
    def append_again(self, data: st.DataObject, step: int) -> None:
        sent = [header for header, _ in self.twin.events[-12:] if not header.is_control]
        if sent:
            self.now_ms += step
            header = data.draw(st.sampled_from(sent))
            self.expect(header._replace(base_offset=self.twin.end, max_timestamp=self.now_ms))

    @rule(
        producer_id=producer_ids,
        rows=st.lists(st.tuples(counts, st.booleans(), st.sampled_from([0, 0, 0, 1])), min_size=2, max_size=4),
    )
    def append_many(self, producer_id: int, rows: list[tuple[int, bool, int]]) -> None:
        """Together they are what they are one by one, but all or nothing, and a repeat is a gap."""
        ahead = Twin(list(self.twin.events), self.twin.forgotten, self.twin.snapshot_at)
        headers: list[BatchHeader] = []
        expected: Answer = None
        for count, transactional, gap in rows:
            sequence = (ahead.last_sequence(producer_id) + 1 + gap) % SEQUENCES
            epoch = max(ahead.epoch(producer_id), 0)
            header = self.header(producer_id, epoch, sequence, count, TRANSACTIONAL if transactional else 0)
            header = header._replace(base_offset=ahead.end)
            expected = expected or ahead.answer(header)
            headers.append(header)
            ahead.events.append((header, None))
        try:
            answer: Answer = self.producers.check(headers)
        except StorageError as error:
            answer = type(error)
        assert answer == (OutOfOrderSequence if isinstance(expected, Duplicate) else expected)
        if answer is None:
            for header in headers:
                self.add(header)

    @rule(producer_id=producer_ids, count=counts, step=steps)
    def read_a_batch_that_compaction_emptied(self, producer_id: int, count: int, step: int) -> None:
        if producer_id not in self.twin.open_transactions():
            self.now_ms += step
            epoch = max(self.twin.epoch(producer_id), 0)
            sequence = (self.twin.last_sequence(producer_id) + 1) % SEQUENCES
            header = self.header(producer_id, epoch, sequence, count, TRANSACTIONAL)
            self.add(header._replace(record_count=0))

    @rule(
        producer_id=producer_ids,
        bump=st.sampled_from([0, 0, 1, 1, -1]),
        commit=st.booleans(),
        coordinator_epoch=st.integers(0, 3),
        epoch_is_bumped=st.booleans(),
        step=steps,
    )
    def append_a_marker(
        self, producer_id: int, bump: int, commit: bool, coordinator_epoch: int, epoch_is_bumped: bool, step: int
    ) -> None:
        self.now_ms += step
        epoch = self.twin.epoch(producer_id)
        marker = Marker(commit, coordinator_epoch)
        header = self.header(producer_id, max(epoch + bump, 0), -1, 1, TRANSACTIONAL | CONTROL)
        opened = self.twin.open_transactions()
        expected: Answer = None
        if header.producer_epoch < epoch or (
            epoch_is_bumped and header.producer_epoch == epoch and producer_id in opened
        ):
            expected = StaleProducerEpoch
        elif coordinator_epoch < self.twin.coordinator_epoch(producer_id):
            expected = TransactionCoordinatorFenced
        answer: Answer = None
        try:
            self.producers.check_marker(header, marker, epoch_is_bumped=epoch_is_bumped)
        except StorageError as error:
            answer = type(error)
        assert answer == expected
        if answer is not None:
            return
        completed = None
        if producer_id in opened:
            stable = min(
                (first for other, first in opened.items() if other != producer_id), default=header.base_offset + 1
            )
            completed = CompletedTransaction(producer_id, opened[producer_id], header.base_offset, stable, not commit)
        assert self.producers.applied(header, marker) == completed
        self.twin.events.append((header, marker))

    @rule(commit=st.booleans(), data=st.data())
    def end_a_transaction(self, commit: bool, data: st.DataObject) -> None:
        opened = sorted(self.twin.open_transactions())
        if opened:
            producer_id = data.draw(st.sampled_from(opened))
            coordinator_epoch = max(self.twin.coordinator_epoch(producer_id), 0)
            self.append_a_marker(producer_id, data.draw(st.integers(0, 1)), commit, coordinator_epoch, False, 0)

    @rule(behind_the_end=st.integers(0, 3))
    def replicate(self, behind_the_end: int) -> None:
        """Up to the end of the log, or to where one of the last markers is the next to come."""
        markers = [header.base_offset for header, marker in self.twin.events if marker]
        places = [self.twin.end, *reversed(markers)]
        high_watermark = places[min(behind_the_end, len(places) - 1)]
        self.twin.high_watermark = max(self.twin.high_watermark, high_watermark)
        self.producers.high_watermark_moved(self.twin.high_watermark)

    @rule(step=steps)
    def expire(self, step: int) -> None:
        self.now_ms += step
        opened = self.twin.open_transactions()
        expired = [
            producer_id
            for producer_id in self.twin.known()
            if self.now_ms - self.twin.view(producer_id).last_timestamp_ms >= EXPIRATION_MS
            and producer_id not in opened
        ]
        assert self.producers.expire(self.now_ms, EXPIRATION_MS) == len(expired)
        self.twin.forgotten.update(dict.fromkeys(expired, len(self.twin.events)))

    @rule(kept=st.integers(-3, 2))
    def start_anew(self, kept: int) -> None:
        """From a snapshot; or from the log, cut by a few batches: then nothing is forgotten, the log says it all."""
        if kept > 0:
            self.producers = Producers.from_snapshot(self.producers.snapshot(), Path("some.snapshot"))
            self.twin.snapshot_at = len(self.twin.events)
            return
        del self.twin.events[len(self.twin.events) + kept :]
        self.twin.forgotten, self.twin.snapshot_at = {}, 0
        self.twin.high_watermark = min(self.twin.high_watermark, self.twin.end)
        self.producers = Producers()
        for header, marker in self.twin.events:
            self.producers.applied(header, marker)
        self.producers.high_watermark_moved(self.twin.high_watermark)

    @invariant()
    def every_answer_is_the_twin_s(self) -> None:
        known = self.twin.known()
        views = {view.producer_id: view for view in self.producers.views()}
        assert views == {producer_id: self.twin.view(producer_id) for producer_id in known}
        first = self.twin.first_unstable_offset()
        assert self.producers.first_unstable_offset == first
        high_watermark = self.twin.high_watermark
        stable = high_watermark if first is None else min(first, high_watermark)
        assert self.producers.last_stable_offset(high_watermark) == stable


TestProducersAgainstTheLog = ProducersMachine.TestCase
