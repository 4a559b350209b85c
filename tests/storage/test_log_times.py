"""Look-ups by time: the first record at a time or later, and the latest record of all."""

from pathlib import Path

import pytest

from pylog.storage import codecs
from pylog.storage.batch import pack_header, read_header
from pylog.storage.errors import CorruptBatch
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import Record, encode_batch
from tests.support.logs import batch_of, log_in, reopened

BATCH_BYTES = len(batch_of(1))
TIMES = [5, 3, 9, 9, 2, 30, 31, 32, 7, 40, 1, 40, 41]


def _with_times(log: PartitionLog, times: list[int], codec: int = 0) -> PartitionLog:
    """Three records a batch."""
    for start in range(0, len(times), 3):
        rows = [Record(n, time, None, b"x" * 20) for n, time in enumerate(times[start : start + 3])]
        log.append(encode_batch(rows, codec=codec), 0)
    log.advance_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.LZ4])
@pytest.mark.parametrize("interval", [0, 200, 1 << 20])
@pytest.mark.parametrize("clean", [None, True, False], ids=["live", "closed", "killed"])
def test_the_first_record_at_a_time_or_later_is_found(
    tmp_path: Path, codec: int, interval: int, clean: bool | None
) -> None:
    log = _with_times(log_in(tmp_path, LogConfig(segment_bytes=500, index_interval_bytes=interval)), TIMES, codec)
    if clean is not None:
        log = reopened(log, clean=clean)
    for asked in range(-2, 45):
        found = [(time, offset) for offset, time in enumerate(TIMES) if time >= asked]
        assert log.offset_at_time(asked) == (found[0] if found else None), asked


@pytest.mark.parametrize("start", range(len(TIMES) + 1))
@pytest.mark.parametrize("segment_bytes", [200, 500, 1 << 20])
@pytest.mark.parametrize("times", [TIMES, TIMES[::-1]], ids=["growing", "falling"])
def test_records_that_were_deleted_are_not_found(
    tmp_path: Path, start: int, segment_bytes: int, times: list[int]
) -> None:
    """Whether or not the batch or the segment that holds them is still there."""
    log = _with_times(log_in(tmp_path, LogConfig(segment_bytes=segment_bytes, index_interval_bytes=0)), times)
    log.move_start(start)
    left = [(time, offset) for offset, time in enumerate(times) if offset >= start]
    for detached in (False, True):
        if detached:
            log.detach_deleted()
        for asked in range(-2, 45):
            found = [record for record in left if record[0] >= asked]
            assert log.offset_at_time(asked) == (found[0] if found else None), asked
        latest = max(left, key=lambda record: (record[0], -record[1]), default=None)
        assert log.offset_of_max_timestamp() == latest


@pytest.mark.parametrize(
    ("times", "latest"),
    [
        pytest.param([], None, id="an empty log has none"),
        pytest.param([-1, -1, -1, -1], None, id="records without time"),
        pytest.param([7], (7, 0), id="one"),
        pytest.param([1, 2, 3, 4, 5], (5, 4), id="the last"),
        pytest.param([9, 2, 3, 4, 5], (9, 0), id="the first"),
        pytest.param([1, 2, 9, 4, 9, 9], (9, 2), id="the first of several"),
    ],
)
@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
def test_the_latest_record_is_found(
    tmp_path: Path, times: list[int], latest: tuple[int, int] | None, segment_bytes: int
) -> None:
    log = _with_times(log_in(tmp_path, LogConfig(segment_bytes=segment_bytes)), times)
    assert log.offset_of_max_timestamp() == latest
    for clean in (True, False):
        log = reopened(log, clean=clean)
        assert log.offset_of_max_timestamp() == latest


def test_a_batch_that_overstates_its_time_is_passed_over(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    batch = batch_of(1, timestamp_ms=10)
    pack_header(batch, 0, read_header(batch)._replace(max_timestamp=99))
    log.append(batch, 0)
    log.append(batch_of(1, timestamp_ms=50), 0)
    assert log.offset_at_time(20) == (50, 1)
    assert log.offset_at_time(60) is None


def test_time_index_entries_count_from_the_largest_timestamp_of_the_log(tmp_path: Path) -> None:
    """Recovery of a segment whose batches overstate or lack their times."""
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0))
    log.append(batch_of(1, timestamp_ms=-1), 0)
    late = batch_of(1, timestamp_ms=50)
    pack_header(late, 0, read_header(late)._replace(max_timestamp=80))
    log.append(late, 0)
    log.append(batch_of(1, timestamp_ms=70), 0)
    for clean in (False, True, False):
        log = reopened(log, clean=clean)
        assert log.offset_at_time(10) == (50, 1)
        assert log.offset_at_time(60) == (70, 2)
        assert log.offset_at_time(75) is None


def test_a_damaged_batch_is_named_by_file_and_place(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1, timestamp_ms=5), 0)
    log.append(batch_of(1, timestamp_ms=9), 0)
    path = log.directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert log.offset_at_time(5) == (5, 0)
    with pytest.raises(CorruptBatch, match=f"{path}: the batch at byte {BATCH_BYTES} "):
        log.offset_at_time(6)
    assert log.failure is None  # the disk gave what it has: only this look-up fails
