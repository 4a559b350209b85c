"""When a segment is full or old enough for the next one to begin, and what its indexes hold by then."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from pylog.storage import codecs
from pylog.storage.batch import pack_header, read_header
from pylog.storage.errors import InvalidBatch
from pylog.storage.index import OFFSET_ENTRY, TIME_ENTRY
from pylog.storage.log import LogConfig, PartitionLog
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, base_offsets, batch_of, log_in, offsets_in, reopened
from tests.support.simulated_files import SimulatedFiles

BATCH_BYTES = len(batch_of(1))


def _entries(log: PartitionLog, name: str) -> list[tuple[int, int]]:
    entry = TIME_ENTRY if name.endswith(".timeindex") else OFFSET_ENTRY
    return list(entry.iter_unpack((log.directory / name).read_bytes()))


# -- by size


@pytest.mark.parametrize(
    ("config", "bases"),
    [
        pytest.param(LogConfig(segment_bytes=3 * BATCH_BYTES), [0, 3, 6, 9], id="exactly full still fits"),
        pytest.param(LogConfig(segment_bytes=3 * BATCH_BYTES - 1), [0, 2, 4, 6, 8], id="one byte over rolls"),
        pytest.param(LogConfig(segment_bytes=BATCH_BYTES), list(range(10)), id="an empty segment never rolls"),
        pytest.param(LogConfig(index_interval_bytes=0, index_bytes_max=60), [0, 5], id="full time index"),
        pytest.param(LogConfig(index_bytes_max=24), [0], id="index that takes no entry yet"),
    ],
)
def test_a_full_segment_rolls(tmp_path: Path, config: LogConfig, bases: list[int]) -> None:
    log = log_in(tmp_path, config)
    for number in range(10):
        log.append(batch_of(1, timestamp_ms=START_MS + number), 0)
    assert base_offsets(log) == bases
    assert offsets_in(log) == list(range(10))


def test_a_full_offset_index_rolls(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0, index_bytes_max=40))
    for _ in range(10):
        log.append(batch_of(1), 0)  # of one time, so that the time index stays small
    assert base_offsets(log) == [0, 6]


def test_a_large_index_is_full_at_the_same_entry_as_a_small_one(tmp_path: Path) -> None:
    """Far from its limit nobody counts: indexes are told of many batches at a time, and looked at as seldom."""
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0, index_bytes_max=200 * TIME_ENTRY.size))
    for number in range(500):
        log.append(batch_of(1, timestamp_ms=START_MS + number), 0)
    assert base_offsets(log) == [0, 200, 400]


def test_a_full_index_keeps_to_its_limit_with_the_closing_entry(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0, index_bytes_max=60))
    for number in range(12):
        log.append(batch_of(1, timestamp_ms=START_MS + number), 0)
    sizes = [os.path.getsize(path) for path in log.directory.glob("*index")]
    assert max(sizes) <= 60


@pytest.mark.parametrize(
    ("counts", "bases"),
    [
        pytest.param([1 << 30, 1 << 30], [0], id="last offset 2**31 - 1 is the last that fits"),
        pytest.param([1 << 30, (1 << 30) - 1, 1, 1], [0, 1 << 31], id="one more does not"),
        pytest.param([1 << 30, 1 << 30, 1 << 30], [0, 1 << 31], id="a whole batch more does not"),
        pytest.param([1, (1 << 31) - 1, 1], [0, 1 << 31], id="a batch that fits behind another"),
        pytest.param([2, (1 << 31) - 1], [0, 2], id="a batch that fits only alone"),
    ],
)
def test_an_offset_that_does_not_fit_into_the_index_rolls(tmp_path: Path, counts: list[int], bases: list[int]) -> None:
    """A compressed batch may hold any number of records, as far as its header tells."""
    log = log_in(tmp_path)
    for count in counts:
        batch = batch_of(1, codec=codecs.GZIP)
        pack_header(batch, 0, read_header(batch)._replace(record_count=count, last_offset_delta=count - 1))
        log.append(batch, 0)
    assert base_offsets(log) == bases
    assert log.log_end_offset == sum(counts)


@pytest.mark.parametrize("before", [0, 1], ids=["in a new log", "behind another batch"])
def test_batches_whose_offsets_fit_into_no_index_together_are_refused(tmp_path: Path, before: int) -> None:
    config = LogConfig(index_interval_bytes=0)
    log = log_in(tmp_path, config)
    for _ in range(before):
        log.append(batch_of(1), 0)
    together = bytearray()
    for number, count in enumerate([(1 << 31) - 1, 2]):
        batch = batch_of(1, codec=codecs.GZIP, timestamp_ms=START_MS + number)
        pack_header(batch, 0, read_header(batch)._replace(record_count=count, last_offset_delta=count - 1))
        together += batch
    with pytest.raises(InvalidBatch, match="2147483649 records"):
        log.append(together, 0)
    log.append(batch_of(1), 0)
    log.close()
    assert offsets_in(PartitionLog(log.directory, config)) == list(range(before + 1))


# -- by time


@pytest.mark.parametrize(
    ("timestamps", "bases"),
    [
        pytest.param([0, 500, 1000], [0], id="as old as segment.ms stays"),
        pytest.param([0, 500, 1001], [0, 2], id="older rolls"),
        pytest.param([0, 1001, 1500, 2001, 2002], [0, 1, 4], id="counted from each segment's first"),
        pytest.param([5000, 0, 4000, 6001], [0, 3], id="late records count from the first too"),
        pytest.param([0, 5000, 0, 0], [0, 1], id="a clock that goes back does not roll"),
    ],
)
def test_segment_ms_counts_in_the_time_of_the_batches(tmp_path: Path, timestamps: list[int], bases: list[int]) -> None:
    clock = SettableClock()
    log = log_in(tmp_path, LogConfig(segment_ms=1000), clock=clock)
    for timestamp_ms in timestamps:
        clock.advance(1_000_000)  # which does not matter
        log.append(batch_of(1, timestamp_ms=START_MS + timestamp_ms), 0)
    assert base_offsets(log) == bases


def test_a_compacted_log_rolls_in_time_for_its_compaction(tmp_path: Path) -> None:
    for compact, bases in ((True, [0, 1]), (False, [0])):
        config = LogConfig(segment_ms=1000, compaction_lag_ms_max=100, compact=compact)
        log = log_in(tmp_path / str(compact), config)
        for timestamp_ms in (START_MS, START_MS + 101):
            log.append(batch_of(1, timestamp_ms=timestamp_ms), 0)
        assert base_offsets(log) == bases


def test_the_first_batch_of_a_segment_counts_also_after_a_restart(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_ms=1000))
    log.append(batch_of(1, timestamp_ms=START_MS), 0)
    log.append(batch_of(1, timestamp_ms=START_MS + 900), 0)
    for clean in (True, False):
        log = reopened(log, clean=clean)
    log.append(batch_of(1, timestamp_ms=START_MS + 1000), 0)
    assert base_offsets(log) == [0]
    log.append(batch_of(1, timestamp_ms=START_MS + 1001), 0)
    assert base_offsets(log) == [0, 3]


def test_every_segment_tells_the_time_of_its_first_batch(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_ms=1000))
    for late in (5, 0, 2000, 2010):
        log.append(batch_of(1, timestamp_ms=START_MS + late), 0)
    log.roll()
    for clean in (True, False):
        assert [log.first_timestamp_ms(base) for base in (0, 2, 4)] == [START_MS + 5, START_MS + 2000, -1]
        log = reopened(log, clean=clean)


def test_segment_ms_counts_by_the_clock_where_batches_have_no_time(tmp_path: Path) -> None:
    clock = SettableClock()
    log = log_in(tmp_path, LogConfig(segment_ms=1000), clock=clock)
    clock.advance(5000)
    log.append(batch_of(1, timestamp_ms=-1), 0)  # an empty segment never rolls
    log.append(batch_of(1, timestamp_ms=-1), 0)
    assert base_offsets(log) == [0, 1]
    clock.advance(1000)
    log.append(batch_of(1, timestamp_ms=-1), 0)
    assert base_offsets(log) == [0, 1]
    clock.advance(1)
    log.append(batch_of(1, timestamp_ms=-1), 0)
    assert base_offsets(log) == [0, 1, 3]


@pytest.mark.parametrize(
    ("jitter_ms", "spans"),
    [
        pytest.param(0, {11}, id="none"),
        pytest.param(4, {8, 9, 10, 11}, id="up to jitter earlier"),
        pytest.param(500, set(range(2, 12)), id="never more than segment.ms"),
    ],
)
def test_every_segment_rolls_a_different_time_too_early(jitter_ms: int, spans: set[int]) -> None:
    """So that partitions that were created together do not all roll together."""
    files = SimulatedFiles()
    log = log_in(files.root, LogConfig(segment_ms=10, segment_jitter_ms=jitter_ms), files=files)
    for number in range(1500):
        log.append(batch_of(1, timestamp_ms=START_MS + number), 0)
    bases = base_offsets(log)  # a record a millisecond
    assert {after - before for before, after in pairwise(bases)} == spans


def test_a_roll_on_demand_leaves_an_empty_segment_alone(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.roll()
    assert base_offsets(log) == [0]
    log.append(batch_of(3), 0)
    for _ in range(2):
        log.roll()
        assert base_offsets(log) == [0, 3]
    assert log.append(batch_of(1), 0).base_offset == 3


# -- what the indexes hold


def test_index_entries_are_placed_as_kafka_places_them(tmp_path: Path) -> None:
    """An entry when more than the interval was written since the last one, before this batch is counted."""
    log = log_in(tmp_path, LogConfig(index_interval_bytes=2 * BATCH_BYTES - 1))
    for number in range(8):
        log.append(batch_of(1, timestamp_ms=START_MS + 10 * number), 0)
    log.close()
    assert _entries(log, f"{0:020d}.index") == [(n, n * BATCH_BYTES) for n in (2, 4, 6)]
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS + 10 * n, n) for n in (2, 4, 6, 7)]


def test_the_interval_itself_is_not_more_than_the_interval(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=2 * BATCH_BYTES))
    for _ in range(8):
        log.append(batch_of(1), 0)
    log.close()
    assert _entries(log, f"{0:020d}.index") == [(n, n * BATCH_BYTES) for n in (3, 6)]


def test_entries_name_the_last_offset_of_their_batch(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0))
    log.append(batch_of(3), 0)
    log.append(batch_of(3, timestamp_ms=START_MS + 10), 0)
    log.close()
    assert _entries(log, f"{0:020d}.index") == [(5, len(batch_of(3)))]
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS + 12, 5)]


def test_a_rolled_segment_ends_its_time_index_with_its_maximum(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=2 * BATCH_BYTES))
    for late in (0, 50, 20, 30, 0):
        log.append(batch_of(1, timestamp_ms=START_MS + late), 0)
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS + 50, 1)]
    assert _entries(log, f"{2:020d}.timeindex") == [(START_MS + 30, 1)]


def test_the_time_index_only_ascends(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0))
    for late in (5, 1, 9, 3, 9, 10):
        log.append(batch_of(1, timestamp_ms=START_MS + late), 0)
    log.close()
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS + 5, 0), (START_MS + 9, 2), (START_MS + 10, 5)]


def test_of_equal_timestamps_the_first_is_the_maximum(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=2 * BATCH_BYTES))
    for _ in range(5):
        log.append(batch_of(1), 0)
    log = reopened(log, clean=True)
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS, 0)]
    assert log.offset_at_time(START_MS) == (START_MS, 0)


def test_a_log_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    """Also with its indexes: the interval is measured across the restart."""
    config = LogConfig(index_interval_bytes=2 * BATCH_BYTES)
    log = log_in(tmp_path, config)
    for number in range(9):
        log.append(batch_of(1), 0)
        if number % 2:
            log = reopened(log, clean=True)
            assert log.log_end_offset == number + 1
    log.close()
    assert _entries(log, f"{0:020d}.index") == [(n, n * BATCH_BYTES) for n in (3, 6)]


# -- a configuration that changes while the log is open


def test_a_new_configuration_holds_from_the_next_append_on(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_ms=1000, index_interval_bytes=1 << 20))
    for later_ms in (0, 500):
        log.append(batch_of(1, timestamp_ms=START_MS + later_ms), 0)
    log.reconfigure(LogConfig(segment_ms=100, index_interval_bytes=0))
    log.append(batch_of(1, timestamp_ms=START_MS + 99), 0)
    assert base_offsets(log) == [0]
    log.append(batch_of(1, timestamp_ms=START_MS + 101), 0)
    assert base_offsets(log) == [0, 3]
    assert len(_entries(log, "00000000000000000000.index")) == 1
    log.reconfigure(LogConfig(segment_ms=100, segment_bytes=BATCH_BYTES))
    log.append(batch_of(1, timestamp_ms=START_MS + 101), 0)
    assert base_offsets(log) == [0, 3, 4]
