"""What files tell of when a record was written, beside what the log itself says."""

import pytest

from pylog.storage.batch import read_header
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.peek import first_timestamp_ms
from pylog.storage.records import Record, encode_batch
from tests.support.clock import SettableClock
from tests.support.simulated_files import SimulatedFiles

START_MS = 1_700_000_000_000


def batch(count: int, first_ms: int, step_ms: int = 1, size: int = 20) -> bytearray:
    return encode_batch([Record(n, first_ms + n * step_ms, None, bytes(size)) for n in range(count)])


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def opened(files: SimulatedFiles, **config) -> PartitionLog:
    return PartitionLog(files.root / "t-0", LogConfig(**config), files=files, clock=SettableClock())


def by_the_log(log: PartitionLog, offset: int) -> int | None:
    found = log.read(offset, 1)
    return None if found is None else read_header(found.file.read_at(found.position, 61)).base_timestamp


@pytest.mark.parametrize(
    ("interval", "segment_bytes"),
    [
        pytest.param(0, 1 << 30, id="one segment, every batch in its index"),
        pytest.param(4096, 1 << 30, id="one segment, a sparse index"),
        pytest.param(1 << 30, 1 << 30, id="no index"),
        pytest.param(0, 20_000, id="many segments"),
        pytest.param(4096, 20_000, id="many segments, sparse indexes"),
    ],
)
def test_every_offset_has_the_time_of_its_batch(files, interval, segment_bytes):
    log = opened(files, index_interval_bytes=interval, segment_bytes=segment_bytes)
    for number in range(1500):
        log.append(batch(1 + number % 3, START_MS + 10 * number), 0)
    for offset in range(0, log.log_end_offset, 7):
        assert first_timestamp_ms(files, log.directory, offset) == by_the_log(log, offset), offset
    assert first_timestamp_ms(files, log.directory, log.log_end_offset) is None


def test_a_look_reads_little_of_a_long_log(files, monkeypatch):
    log = opened(files, index_interval_bytes=0)
    for number in range(5000):
        log.append(batch(1, START_MS + number), 0)
    read_at, reads = files.read_at, []
    monkeypatch.setattr(files, "read_at", lambda *place: reads.append(place) or read_at(*place))
    for offset in (0, 1, 600, 2000, 2500, 4000, 4999):
        reads.clear()
        assert first_timestamp_ms(files, log.directory, offset) == START_MS + offset
        assert len(reads) <= 10, offset


def test_where_the_records_are_gone_the_next_ones_tell(files):
    log = opened(files, segment_bytes=2_000)
    for number in range(200):
        log.append(batch(1, START_MS + number), 0)
    log.advance_high_watermark(200)
    log.move_start(100)
    for path in log.bury(log.detach_deleted()):
        files.remove(path)
    assert log.first_base_offset > 0
    first = by_the_log(log, log.log_start_offset)
    assert first_timestamp_ms(files, log.directory, 0) <= first
    assert first_timestamp_ms(files, log.directory, 100) == first


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"\0" * 200, None, id="zeros"),
        pytest.param(bytes(batch(3, START_MS))[:40], None, id="half a header"),
        pytest.param(bytes(batch(3, -1, 0)), None, id="no timestamps"),
        pytest.param(bytes(batch(3, START_MS)), START_MS, id="a batch"),
    ],
)
def test_what_cannot_be_is_no_answer(files, data, told):
    directory = files.root / "t-0"
    files.make_directory(directory)
    files.write_at(directory / f"{0:020d}.log", 0, data)
    assert first_timestamp_ms(files, directory, 0) == told


def test_an_index_that_lies_gives_no_wrong_time(files):
    directory = files.root / "t-0"
    files.make_directory(directory)
    files.write_at(directory / f"{0:020d}.log", 0, batch(3, START_MS))
    files.write_at(directory / f"{0:020d}.index", 0, b"\0\0\0\0\xff\xff\xff\xff")
    assert first_timestamp_ms(files, directory, 2) in (None, START_MS)


def test_a_log_that_is_gone_is_no_answer(files):
    assert first_timestamp_ms(files, files.root / "gone-0", 0) is None


def test_with_append_time_it_is_when_the_batch_came(files):
    log = opened(files, log_append_time=True)
    log.append(batch(3, 5), 0)
    assert first_timestamp_ms(files, log.directory, 0) == SettableClock().now_ms()
