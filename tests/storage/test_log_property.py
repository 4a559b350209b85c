"""Any sequence of appends, closes, kills and torn tails against a plain list of batches."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pylog.storage import index, recovery, segment
from pylog.storage.batch import walk
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import Record, decode_batch, encode_batch
from pylog.storage.recovery import Trust
from tests.support.logs import bytes_of, reopened

SEGMENT_BYTES_MIN = 2500  # the largest append that is drawn fits

timestamps = st.integers(-1, 60) | st.integers(0, 1 << 41)
rows = st.lists(st.tuples(timestamps, st.binary(max_size=60)), min_size=1, max_size=4)
appends = st.lists(st.tuples(rows, st.sampled_from([0, 0, 0, 1, 4])), min_size=1, max_size=3)


class LogMachine(RuleBasedStateMachine):
    """The twin is a list of batches, each a list of records; every question is answered by looking at all of it."""

    directory: Path

    def __init__(self) -> None:
        super().__init__()
        self.twin: list[list[Record]] = []
        self.sizes: list[int] = []

    @initialize(
        segment_bytes=st.integers(SEGMENT_BYTES_MIN, 6000),
        interval=st.sampled_from([0, 100, 300, 1000, 4096]),
        index_bytes_max=st.sampled_from([24, 60, 10485760]),
    )
    def open(self, segment_bytes: int, interval: int, index_bytes_max: int) -> None:
        number = len(list(self.directory.iterdir()))
        config = LogConfig(segment_bytes, interval, index_bytes_max)
        self.log = PartitionLog(self.directory / f"topic-{number}", config, Trust(clean=True))

    @property
    def end(self) -> int:
        return self.twin[-1][-1].offset + 1 if self.twin else 0

    @rule(batches=appends)
    def append(self, batches: list[tuple[list[tuple[int, bytes]], int]]) -> None:
        data = bytearray()
        base = self.end
        for rows, codec in batches:
            first = rows[0][0]
            records = [Record(n, time if first != -1 else -1, None, value) for n, (time, value) in enumerate(rows)]
            encoded = encode_batch(records, codec=codec)
            data += encoded
            self.twin.append([record._replace(offset=self.end + record.offset) for record in records])
            self.sizes.append(len(encoded))
        assert self.log.append(data, 0) == (base, self.end - 1, -1)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.log = reopened(self.log, clean=clean)

    @rule(cut=st.integers(1, 300))
    def lose_the_tail(self, cut: int) -> None:
        """Kill, and cut the last segment within its last batch."""
        self.log.abandon()
        last = max(self.log.directory.glob("*.log"))
        size = last.stat().st_size
        if size:
            with last.open("r+b") as file:
                file.truncate(size - min(cut, self.sizes[-1]))
            self.twin.pop()
            self.sizes.pop()
        self.log = PartitionLog(self.log.directory, self.log.config, Trust(clean=False))

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        total = sum(self.sizes)
        bytes_max = data.draw(st.integers(0, total + 10))
        for number, records in enumerate(self.twin):
            for record in records:
                part = self.log.read(record.offset, bytes_max)
                assert part is not None
                raw = bytes_of(part)
                got = [decode_batch(raw, position) for position, _ in walk(raw)]
                assert got == self.twin[number : number + len(got)]
                assert got
                assert part.length == sum(self.sizes[number : number + len(got)])
                assert part.length <= bytes_max or len(got) == 1
                following = number + len(got)
                ends_the_segment = part.position + part.length == part.file.path.stat().st_size
                if not ends_the_segment:
                    assert part.length + self.sizes[following] > bytes_max, "another batch would have fitted"

    @rule(data=st.data())
    def look_up_times(self, data: st.DataObject) -> None:
        known = sorted({record.timestamp_ms for records in self.twin for record in records})
        asked = data.draw(st.lists(timestamps, max_size=3))
        for timestamp_ms in [*asked, *known, *(time + 1 for time in known)]:
            found = next(
                (
                    (record.timestamp_ms, record.offset)
                    for records in self.twin
                    for record in records
                    if record.timestamp_ms >= timestamp_ms
                ),
                None,
            )
            assert self.log.offset_at_time(timestamp_ms) == found

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (0, self.end)
            assert self.log.size_bytes == sum(self.sizes)
            assert self.log.read(self.end, 1) is None

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.abandon()


@pytest.mark.parametrize("tiny", [False, True], ids=["as it is", "with tiny buffers"])
def test_any_history_agrees_with_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tiny: bool
) -> None:
    """Tiny buffers, so that short logs too leave what is kept in memory and cross the ends of chunks."""
    if tiny:
        monkeypatch.setattr(segment, "_RECENT_MAX", 4)
        monkeypatch.setattr(segment, "_READ_AHEAD_BYTES", 150)
        monkeypatch.setattr(index, "_WAITING_BYTES_MAX", 36)
        monkeypatch.setattr(recovery, "_CHUNK_BYTES", 150)
    monkeypatch.setattr(LogMachine, "directory", tmp_path_factory.mktemp("logs"), raising=False)
    slow = [HealthCheck.too_slow]
    run_state_machine_as_test(
        LogMachine,
        settings=settings(max_examples=30, stateful_step_count=20, deadline=None, suppress_health_check=slow),
    )
