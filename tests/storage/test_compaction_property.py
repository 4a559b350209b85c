"""Any log, compacted over and over while time passes, against the twin that looks at everything."""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylog.storage.batch import CONTROL
from pylog.storage.compaction import LastBatch
from pylog.storage.errors import DedupeBufferTooSmall
from pylog.storage.kernels import cleaned_segment, cleaner, segment_reader
from pylog.storage.records import Record
from tests.support.compacted_log import DAY_MS, START_MS, CompactedLog
from tests.support.compaction_twin import committed_records, compacted, state_of

TRANSACTIONAL_IDS = (10, 11)

keys = st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"12345678", b"a longer key than the others"])
values = st.none() | st.binary(max_size=20) | st.just(b"x" * 600)
timestamps = st.integers(-1, 50) | st.integers(START_MS, START_MS + 10 * DAY_MS)
headers = st.sampled_from([(), (("h", b"1"), ("", None))])
rows = st.lists(st.tuples(timestamps, keys, values, headers), min_size=1, max_size=5)


@dataclass(frozen=True)
class Data:
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]
    producer_id: int
    codec: int
    append_time_ms: int | None

    def run(self, log: CompactedLog) -> None:
        # without a first timestamp no record of a batch has one
        times = [row[0] for row in self.rows] if self.rows[0][0] != -1 else [-1] * len(self.rows)
        records = [Record(0, time, *row[1:]) for time, row in zip(times, self.rows, strict=True)]
        log.append(
            records,
            producer_id=self.producer_id,
            transactional=self.producer_id in TRANSACTIONAL_IDS,
            codec=self.codec,
            append_time_ms=self.append_time_ms,
        )


@dataclass(frozen=True)
class End:
    producer_id: int
    commit: bool

    def run(self, log: CompactedLog) -> None:
        log.end(self.producer_id, commit=self.commit)


@dataclass(frozen=True)
class OtherControl:
    def run(self, log: CompactedLog) -> None:
        log.append([Record(0, START_MS, b"\x00\x00\x00\x02", b"leader change")], attributes=CONTROL)


@dataclass(frozen=True)
class Roll:
    def run(self, log: CompactedLog) -> None:
        log.roll()


@dataclass(frozen=True)
class Clean:
    pass_ms: int
    slots: int
    expired: frozenset[int]
    only_markers_known: frozenset[int]

    def run(self, log: CompactedLog) -> None:
        log.now_ms += self.pass_ms
        log.roll()
        for _ in range(3):  # as often as the buffer needs, within reason
            before = log.first_dirty_offset
            self.run_once(log)
            if log.first_dirty_offset == before:
                break

    def run_once(self, log: CompactedLog) -> None:
        plan = log.plan(dedupe_buffer_bytes=24 * self.slots, producers=self.producers(log))
        if not plan.segments:
            return
        old = [log.segment(base_offset) for base_offset, _ in plan.segments]
        whole = log.batches()
        state = state_of(committed_records(whole, log.aborted()))
        try:
            expected = compacted(plan, old, whole)
        except DedupeBufferTooSmall:
            with pytest.raises(DedupeBufferTooSmall, match=r"log\.cleaner\.dedupe\.buffer\.size"):
                log.clean(plan)
            assert not [name for name in log.files.sizes_in(log.directory) if name.endswith(".cleaned")]
            return
        result = log.clean(plan)
        new = log.batches()
        assert result.cleaned_until == expected.cleaned_until
        assert [group.base_offset for group in result.groups] == [segment.base_offset for segment in expected.segments]
        for segment, group in zip(expected.segments, result.groups, strict=True):
            found = log.segment(segment.base_offset)
            assert [batch.facts for batch in found] == [batch.facts for batch in segment.batches]
            for batch, twin in zip(found, segment.batches, strict=True):
                assert batch.data == twin.data or not twin.data, "a batch that stays whole is copied byte for byte"
            assert log.aborted(segment.base_offset) == segment.aborted
            assert sum(len(batch.data) for batch in found) == group.size_bytes
            first = [base for base, _ in plan.segments].index(group.old_base_offsets[-1])
            assert found[-1].header.next_offset == plan.next_offset(first), "it says which segments it replaces"
            indexes = (log.files.read(log.path(segment.base_offset, suffix)) for suffix in (".index", ".timeindex"))
            assert tuple(indexes) == log.rebuilt_indexes(segment.base_offset)
        assert result.tombstones_left == expected.tombstones_left
        replaced = [
            batch for number in range(sum(len(g.old_base_offsets) for g in result.groups)) for batch in old[number]
        ]
        kept = [batch for segment in expected.segments for batch in segment.batches]
        assert result.records_before == sum(batch.header.record_count for batch in replaced)
        assert result.records_after == sum(batch.header.record_count for batch in kept)
        assert result.bytes_before == sum(len(batch.data) for batch in replaced)
        assert result.bytes_after == sum(group.size_bytes for group in result.groups)
        assert state_of(committed_records(new, log.aborted())) == state, "the table that the log stands for is the same"

    def producers(self, log: CompactedLog) -> tuple[LastBatch, ...]:
        last: dict[int, int] = {}
        for batch in log.batches():
            if batch.header.producer_id >= 0 and not batch.header.is_control:
                last[batch.header.producer_id] = batch.header.last_offset
            elif batch.header.producer_id >= 0:
                last.setdefault(batch.header.producer_id, -1)
        return tuple(
            LastBatch(producer_id, 0, -1 if producer_id in self.only_markers_known else offset)
            for producer_id, offset in last.items()
            if producer_id not in self.expired
        )


ends = st.builds(End, st.sampled_from(TRANSACTIONAL_IDS), st.booleans())
everything = st.lists(
    st.one_of(
        st.builds(
            Data,
            rows,
            st.sampled_from([-1, 1, 2, *TRANSACTIONAL_IDS]),
            st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
            st.sampled_from([None, None, None, START_MS + 5]),
        ),
        ends,
        st.builds(Roll),
        st.builds(
            Clean,
            st.sampled_from([0, 0, DAY_MS - 1, DAY_MS, 10 * DAY_MS]),
            st.sampled_from([2, 3, 4, 1000]),
            st.frozensets(st.sampled_from([1, 2, *TRANSACTIONAL_IDS])),
            st.frozensets(st.sampled_from(TRANSACTIONAL_IDS), max_size=1),
        ),
        st.builds(OtherControl),
    ),
    max_size=40,
)
# little else than transactions that end, and many runs: what one leaves behind, the next has to understand
few_rows = st.lists(st.tuples(st.just(START_MS), st.sampled_from([b"a", b"b"]), st.just(b""), st.just(())), min_size=1)
few_rows = few_rows.map(lambda rows: rows[:2])
one_transaction = st.builds(
    lambda rows, producer_id, commit: [Data(rows, producer_id, 0, None), End(producer_id, commit)],
    few_rows,
    st.sampled_from(TRANSACTIONAL_IDS),
    st.booleans(),
)
one_run = st.builds(
    lambda pass_ms, expired: [Clean(pass_ms, 1000, expired, frozenset())],
    st.sampled_from([0, 0, 0, DAY_MS]),
    st.sampled_from([frozenset(), frozenset(TRANSACTIONAL_IDS)]),
)
transactions = st.lists(one_transaction | one_run, max_size=12).map(
    lambda parts: [step for part in parts for step in part]
)


@pytest.mark.parametrize(
    ("chunk_bytes", "write_bytes", "plain_bytes"),
    [
        pytest.param(None, None, None, id="buffers as they are"),
        pytest.param(200, 300, 1, id="buffers smaller than batches"),
        pytest.param(900, 1000, 150, id="buffers of a few batches"),
    ],
)
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=everything | transactions,
    interval_bytes=st.sampled_from([0, 100, 500, 4096]),
    segment_bytes=st.sampled_from([300, 2000, 1 << 20]),
)
def test_what_remains_is_what_the_twin_keeps(
    monkeypatch: pytest.MonkeyPatch,
    chunk_bytes: int | None,
    write_bytes: int | None,
    plain_bytes: int | None,
    steps: list["Data | End | Roll | Clean | OtherControl"],
    interval_bytes: int,
    segment_bytes: int,
) -> None:
    if chunk_bytes is not None:
        monkeypatch.setattr(segment_reader, "CHUNK_BYTES", chunk_bytes)
        monkeypatch.setattr(cleaned_segment, "WRITE_BYTES", write_bytes)
        monkeypatch.setattr(cleaner, "_PLAIN_BYTES", plain_bytes)
    log = CompactedLog(index_interval_bytes=interval_bytes, segment_bytes=segment_bytes)
    for step in [*steps, Clean(0, 1000, frozenset(), frozenset())]:
        step.run(log)
