"""Any sequence of appends, producers, transactions, rolls, deletions, truncations, closes and kills against a list."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pylog.storage import index, scan, segment
from pylog.storage.batch import TRANSACTIONAL, walk
from pylog.storage.errors import (
    InvalidTransactionState,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StaleProducerEpoch,
    StorageError,
)
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import Record, decode_batch, encode_batch
from pylog.storage.recovery import Trust
from pylog.storage.retention import start_after_retention
from pylog.storage.transactions import Marker, encode_marker
from tests.support.clock import SettableClock
from tests.support.log_twin import LogTwin, TwinBatch
from tests.support.logs import bytes_of
from tests.support.simulated_files import SimulatedFiles

SEGMENT_BYTES_MIN = 2500  # the largest append that is drawn fits
LATEST_MS = 1 << 41

timestamps = st.integers(-1, 60) | st.integers(0, LATEST_MS)
rows = st.lists(st.tuples(timestamps, st.binary(max_size=60)), min_size=1, max_size=4)
codecs = st.sampled_from([0, 0, 0, 1, 4])
producers = st.integers(1, 3)


def _records(rows: list[tuple[int, bytes]]) -> list[Record]:
    timeless = rows[0][0] == -1  # of a batch all records have a time, or none
    return [Record(n, -1 if timeless else max(time, 0), None, value) for n, (time, value) in enumerate(rows)]


def _placed(records: list[Record], end: int) -> list[Record]:
    return [record._replace(offset=end + record.offset) for record in records]


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.twin = LogTwin()
        self.files = SimulatedFiles()
        self.clock = SettableClock()
        self.leader_epoch = 0
        self.certain: set[int] = set()  # producers of which all five batches are known: no restart since

    @initialize(
        segment_bytes=st.integers(SEGMENT_BYTES_MIN, 6000),
        interval=st.sampled_from([0, 100, 300, 1000, 4096]),
        index_bytes_max=st.sampled_from([24, 60, 10485760]),
        segment_ms=st.sampled_from([1, 50, 1 << 62]),
    )
    def open(self, segment_bytes: int, interval: int, index_bytes_max: int, segment_ms: int) -> None:
        config = LogConfig(segment_bytes, interval, index_bytes_max, segment_ms)
        self.log = PartitionLog(self.files.root / "topic-0", config, files=self.files, clock=self.clock)

    # -- appending

    @rule(batches=st.lists(st.tuples(rows, codecs), min_size=1, max_size=3))
    def append(self, batches: list[tuple[list[tuple[int, bytes]], int]]) -> None:
        data = bytearray()
        base = self.twin.end
        for drawn, codec in batches:
            records = _records(drawn)
            encoded = encode_batch(records, codec=codec)
            data += encoded
            self.twin.batches.append(TwinBatch(_placed(records, self.twin.end), len(encoded), self.leader_epoch))
        assert self.log.append(data, self.leader_epoch) == (base, self.twin.end - 1, -1, False)

    @rule(
        producer_id=producers,
        drawn=rows,
        move=st.sampled_from(["next", "next", "next", "repeat", "repeat", "gap", "bump", "stale"]),
        back=st.integers(1, 6),
        transactional=st.booleans(),
    )
    def produce(
        self, producer_id: int, drawn: list[tuple[int, bytes]], move: str, back: int, transactional: bool
    ) -> None:
        known = self.twin.known_batches(producer_id)
        epoch = self.twin.epoch_of(producer_id)
        records = _records(drawn)
        sequence = known[-1].last_sequence + 1 if known else 0
        batch_epoch = max(epoch, 0)
        repeated = None
        if move == "repeat" and len(known) >= back:
            repeated = known[-back]
            sequence, records = repeated.sequence, repeated.records
        elif move == "gap":
            sequence += 1
        elif move == "bump":
            batch_epoch, sequence = epoch + 1, 0
        elif move == "stale":
            batch_epoch = max(epoch - 1, 0)
        encoded = encode_batch(
            [record._replace(offset=number) for number, record in enumerate(records)],
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=producer_id,
            producer_epoch=batch_epoch,
            base_sequence=sequence,
        )
        size_bytes = len(encoded)
        refused = self._refusal(producer_id, batch_epoch, sequence, transactional)
        if repeated is not None:
            certain = repeated is known[-1] or producer_id in self.certain
            try:
                appended = self.log.append(encoded, self.leader_epoch)
            except OutOfOrderSequence:
                assert not certain, "a repeat that has to be known was refused"
                return
            assert appended == (repeated.base_offset, repeated.last_offset, -1, True)
            return
        if refused is not None:
            with pytest.raises(refused):
                self.log.append(encoded, self.leader_epoch)
            return
        base = self.twin.end
        self.twin.batches.append(
            TwinBatch(
                _placed([record._replace(offset=number) for number, record in enumerate(records)], base),
                size_bytes,
                self.leader_epoch,
                producer_id,
                batch_epoch,
                sequence,
                transactional,
            )
        )
        if not known or batch_epoch > epoch:
            self.certain.add(producer_id)
        assert self.log.append(encoded, self.leader_epoch) == (base, self.twin.end - 1, -1, False)

    def _refusal(
        self, producer_id: int, batch_epoch: int, sequence: int, transactional: bool
    ) -> type[StorageError] | None:
        epoch = self.twin.epoch_of(producer_id)
        known = self.twin.known_batches(producer_id)
        if batch_epoch < epoch:
            return StaleProducerEpoch
        if epoch >= 0:
            expected = known[-1].last_sequence + 1 if known and batch_epoch == epoch else 0
            if sequence != expected:
                return OutOfOrderSequence
        if self.twin.open_transaction(producer_id) and not transactional:
            return InvalidTransactionState
        return None

    @rule(producer_id=producers, commit=st.booleans(), timestamp_ms=st.integers(0, 60))
    def end_transaction(self, producer_id: int, commit: bool, timestamp_ms: int) -> None:
        """Whether or not one is open: a marker may come twice."""
        epoch = max(self.twin.epoch_of(producer_id), 0)
        marker = Marker(commit, 0)
        encoded = encode_marker(producer_id, epoch, marker, timestamp_ms)
        record = decode_batch(encoded)[0]._replace(offset=self.twin.end)
        batch = TwinBatch([record], len(encoded), self.leader_epoch, producer_id, epoch, marker=marker)
        self.twin.batches.append(batch)
        assert self.log.append(encoded, self.leader_epoch).base_offset == record.offset

    @rule(by=st.integers(1, 3))
    def change_leader(self, by: int) -> None:
        self.leader_epoch += by

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.twin.end + 2) | st.just(self.twin.end))
        self.log.advance_high_watermark(offset)
        self.twin.high_watermark = max(self.twin.high_watermark, min(offset, self.twin.end))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # -- deleting

    def _delete_until(self, offset: int) -> None:
        self.log.move_start(offset)
        self.twin.start = max(self.twin.start, offset)
        for path in self.log.bury(self.log.detach_deleted()):
            self.files.remove(path)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.twin.start, self.twin.high_watermark + 1))
        if offset > self.twin.high_watermark:
            with pytest.raises(OffsetOutOfRange):
                self.log.move_start(offset)
        else:
            self._delete_until(offset)

    @rule(now_ms=timestamps, retention_ms=st.integers(0, 60), retention_bytes=st.integers(-1, 9000))
    def retain(self, now_ms: int, retention_ms: int, retention_bytes: int) -> None:
        views = self.log.segments()
        for view in views:
            inside = [batch for batch in self.twin.batches if view.base_offset <= batch.base_offset < view.next_offset]
            assert view.size_bytes == sum(batch.size_bytes for batch in inside)
            latest_ms = max((record.timestamp_ms for batch in inside for record in batch.records), default=-1)
            assert view.max_timestamp_ms == (self.clock.now_ms() if latest_ms == -1 else latest_ms)
        config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
        start = start_after_retention(views, self.twin.high_watermark, now_ms, config)
        if start is not None and start > self.twin.start:
            self._delete_until(start)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.twin.start - 3, 0), self.twin.end + 1))
        if offset <= self.log.segments()[0].base_offset and offset < self.twin.end:
            self._begin_anew_at(offset, self.log.truncate_to)
        else:
            self.log.truncate_to(offset)
            self.twin.truncate_to(offset)
            self.certain.clear()

    @rule(offset=st.integers(0, 1 << 40))
    def begin_anew(self, offset: int) -> None:
        self._begin_anew_at(offset, self.log.truncate_fully_and_start_at)

    def _begin_anew_at(self, offset: int, truncate: Callable[[int], None]) -> None:
        truncate(offset)
        self.twin.begin_anew_at(offset)
        self.certain.clear()

    # -- stopping

    @rule(recovered=st.booleans())
    def kill(self, recovered: bool) -> None:
        self.log.abandon()
        self._open_again(self.log.recovery_point if recovered else 0)

    @rule()
    def close(self) -> None:
        self.log.close()
        trust = Trust(clean=True, log_start_offset=self.twin.start)
        self.log = PartitionLog(self.log.directory, self.log.config, trust, files=self.files, clock=self.clock)
        self._opened()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.twin.end

    @precondition(lambda self: self.twin.batches and self.twin.batches[-1].base_offset >= self.twin.start)
    @rule(cut=st.integers(1, 300))
    def lose_the_tail(self, cut: int) -> None:
        """Kill, and cut the last segment within its last batch."""
        self.log.abandon()
        last = self.log.directory / max(name for name in self.files.sizes_in(self.log.directory) if name[20:] == ".log")
        size_bytes = self.files.size_of(last) or 0
        if size_bytes:
            self.files.truncate(last, size_bytes - min(cut, self.twin.batches[-1].size_bytes))
            self.twin.truncate_to(self.twin.batches[-1].base_offset)
        self._open_again(0)

    def _open_again(self, recovery_point: int) -> None:
        trust = Trust(False, min(recovery_point, self.twin.end), self.twin.start)
        self.log = PartitionLog(self.log.directory, self.log.config, trust, files=self.files, clock=self.clock)
        self._opened()

    def _opened(self) -> None:
        self.twin.high_watermark = self.twin.end
        self.certain.clear()

    # -- asking

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        left = self.twin.left()
        if not left:
            return
        bytes_max = data.draw(st.integers(0, sum(batch.size_bytes for batch in left) + 10))
        ends = [batch.last_offset + 1 for batch in left]
        end_offset = data.draw(st.none() | st.sampled_from(ends))
        for number in data.draw(st.sets(st.integers(0, len(left) - 1), max_size=6)):
            for record in left[number].records:
                if record.offset < self.twin.start:
                    continue
                part = self.log.read(record.offset, bytes_max, end_offset)
                if end_offset is not None and left[number].base_offset >= end_offset:
                    assert part is None
                    continue
                assert part is not None
                raw = bytes_of(part)
                got = [decode_batch(raw, position) for position, _ in walk(raw)]
                following = number + len(got)
                assert got
                assert got == [batch.records for batch in left[number:following]]
                assert part.length == sum(batch.size_bytes for batch in left[number:following])
                assert part.length <= bytes_max or len(got) == 1
                ends_here = part.position + part.length == self.files.size_of(part.file.path)
                if not ends_here and (end_offset is None or left[following].base_offset < end_offset):
                    assert part.length + left[following].size_bytes > bytes_max, "another batch would have fitted"

    @rule(data=st.data())
    def look_up_times(self, data: st.DataObject) -> None:
        known = sorted({record.timestamp_ms for record in self.twin.records()})
        asked = data.draw(st.lists(timestamps, max_size=3))
        for timestamp_ms in [*asked, *known, *(time + 1 for time in known)]:
            assert self.log.offset_at_time(timestamp_ms) == self.twin.at_time(timestamp_ms)
        assert self.log.offset_of_max_timestamp() == self.twin.latest()

    @rule(data=st.data())
    def ask_for_the_aborted(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.twin.start, self.twin.end))
        end = data.draw(st.integers(start, self.twin.end + 1))
        assert {entry[:3] for entry in self.log.aborted_transactions(start, end)} == self.twin.aborted(start, end)

    @invariant()
    def bounds_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        log, twin = self.log, self.twin
        bounds = log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
        assert bounds == (twin.start, twin.last_stable_offset(), twin.high_watermark, twin.end)
        assert sorted(bounds) == list(bounds)
        assert log.read(twin.end, 1) is None
        first = log.segments()[0].base_offset
        assert first <= twin.start
        assert log.size_bytes == sum(batch.size_bytes for batch in twin.batches if batch.base_offset >= first)
        if twin.start < twin.end:
            assert [tuple(entry) for entry in log.epochs.entries] == twin.epochs()

    @invariant()
    def producers_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        twin = self.twin
        views = {view.producer_id: view for view in self.log.producers.views()}
        assert views.keys() == {batch.producer_id for batch in twin.batches if batch.producer_id >= 0}
        for producer_id, view in views.items():
            known = twin.known_batches(producer_id)
            assert view.epoch == twin.epoch_of(producer_id)
            last = (known[-1].last_sequence, known[-1].last_offset) if known else (-1, -1)
            assert (view.last_sequence, view.last_data_offset) == last
            assert (view.transaction_start >= 0) == twin.open_transaction(producer_id)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.abandon()


@pytest.mark.parametrize("tiny", [False, True], ids=["as it is", "with tiny buffers"])
def test_any_history_agrees_with_a_plain_list(monkeypatch: pytest.MonkeyPatch, tiny: bool) -> None:
    """Tiny buffers, so that short logs too leave what is kept in memory and cross the ends of chunks."""
    if tiny:
        monkeypatch.setattr(segment, "_RECENT_MAX", 4)
        monkeypatch.setattr(scan, "READ_AHEAD_BYTES", 150)
        monkeypatch.setattr(index, "_WAITING_BYTES_MAX", 36)
        monkeypatch.setattr(scan, "CHUNK_BYTES", 150)
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        LogMachine,
        settings=settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=slow),
    )
