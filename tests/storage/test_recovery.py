"""What is left of a log after a crash: all that was whole, nothing that was torn; and what was cut is kept and told."""

import errno
import logging
from pathlib import Path

import pytest

from pylog.storage import scan
from pylog.storage.errors import DamagedSegment
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import Record, encode_batch
from pylog.storage.recovery import CLEAN, UNCLEAN, Trust
from tests.support.logs import (
    START_MS,
    base_offsets,
    batch_of,
    committed,
    log_in,
    marker_of,
    offsets_in,
    records_in,
    reopened,
)
from tests.support.simulated_files import Crashed, SimulatedFiles

pytestmark = pytest.mark.faults

BATCH_BYTES = len(batch_of(2))
FIRST = f"{0:020d}"


def _config(**fields: int) -> LogConfig:
    return LogConfig(**{"segment_bytes": 4 * BATCH_BYTES, "index_interval_bytes": BATCH_BYTES, **fields})  # type: ignore[arg-type]


def _filled(files: SimulatedFiles, appends: int = 10, config: LogConfig | None = None) -> PartitionLog:
    """Batches of two records, four a segment."""
    log = log_in(files.root, config or _config(), files=files)
    for number in range(appends):
        log.append(batch_of(2, timestamp_ms=START_MS + 10 * number), 0)
    return log


def _indexes(log: PartitionLog) -> dict[str, bytes]:
    names = sorted(log._files.sizes_in(log.directory))
    return {name: log._files.read(log.directory / name) or b"" for name in names if name.endswith("index")}


def _expect(log: PartitionLog, appends: int) -> None:
    """The log holds so many appends of `_filled`, finds them by time, and takes another."""
    assert log.log_end_offset == 2 * appends
    assert offsets_in(log) == list(range(2 * appends))
    for offset in range(2 * appends):
        timestamp_ms = START_MS + 10 * (offset // 2) + offset % 2
        assert log.offset_at_time(timestamp_ms) == (timestamp_ms, offset)
    assert log.append(batch_of(1), 0).base_offset == 2 * appends


def _opened(files: SimulatedFiles, log: PartitionLog, trust: Trust = UNCLEAN) -> PartitionLog:
    return PartitionLog(log.directory, log.config, trust, files=files)


# -- nothing was torn


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_was_closed_is_the_same_when_opened(clean: bool) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.close()
    before = _indexes(log)
    log = _opened(files, log, Trust(clean))
    if clean:
        assert _indexes(log) == before
    assert log.cuts == []
    _expect(log, 10)


@pytest.mark.parametrize("appends", range(1, 10))
def test_a_killed_process_loses_nothing_that_was_appended(appends: int) -> None:
    log = reopened(_filled(SimulatedFiles(), appends))
    assert log.cuts == []
    _expect(log, appends)


def test_indexes_that_recovery_builds_are_those_that_a_close_leaves() -> None:
    config = _config(segment_bytes=9 * BATCH_BYTES)
    closed = _filled(SimulatedFiles(), 30, config)
    closed.close()
    files = SimulatedFiles()
    killed = _filled(files, 30, config)
    for name in _indexes(killed):
        files.remove(killed.directory / name)
    reopened(killed).close()
    assert _indexes(killed) == _indexes(closed)
    assert len(_indexes(closed)) == 8


def test_an_empty_last_segment_is_where_the_log_goes_on() -> None:
    """A crash between the roll and its append."""
    files = SimulatedFiles()
    log = _filled(files, 4)
    log.close()
    files.create_empty(log.directory / f"{8:020d}.log")
    _expect(_opened(files, log), 4)
    assert files.size_of(log.directory / f"{8:020d}.log")


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_without_its_log_goes(clean: bool) -> None:
    files = SimulatedFiles()
    log = _filled(files, 3)
    log.close()
    for suffix in (".index", ".timeindex", ".txnindex"):
        files.write_at(log.directory / f"{6:020d}{suffix}", 0, bytes(24))
    log = _opened(files, log, Trust(clean))
    assert not [name for name in files.sizes_in(log.directory) if f"{6:020d}" in name and "index" in name]
    _expect(log, 3)


@pytest.mark.parametrize("clean", [True, False])
def test_files_of_others_stay(clean: bool) -> None:
    files = SimulatedFiles()
    log = _filled(files, 3)
    names = ["partition.metadata", "123.log", f"{FIRST}.log.bak", "0.index", f"{FIRST}.log.cut-17"]
    for name in names:
        files.write_at(log.directory / name, 0, b"kept")
    reopened(log, clean=clean)
    assert all(files.read(log.directory / name) == b"kept" for name in names)


@pytest.mark.parametrize("clean", [True, False])
def test_what_a_stop_left_half_done_is_tidied_up(clean: bool) -> None:
    files = SimulatedFiles()
    log = _filled(files, 3)
    names = [f"{FIRST}.log.deleted", f"{8:020d}.index.cleaned", "leader-epoch-checkpoint.tmp", f"{8:020d}.index.swap"]
    for name in names:
        files.write_at(log.directory / name, 0, b"left")
    log = reopened(log, clean=clean)
    assert not set(names) & set(files.sizes_in(log.directory))
    _expect(log, 3)


# -- torn tails


@pytest.mark.parametrize("cut", [1, 2, BATCH_BYTES // 2, BATCH_BYTES - 61, BATCH_BYTES - 12, BATCH_BYTES - 1])
def test_a_torn_tail_is_cut_kept_and_told(caplog: pytest.LogCaptureFixture, cut: int) -> None:
    files = SimulatedFiles()
    log = _filled(files, 6)
    log.abandon()
    last = log.directory / f"{8:020d}.log"
    files.truncate(last, 2 * BATCH_BYTES - cut)
    torn = files.read_at(last, BATCH_BYTES, BATCH_BYTES)
    with caplog.at_level(logging.WARNING):
        log = _opened(files, log)
    assert files.size_of(last) == BATCH_BYTES
    kept = last.with_name(f"{last.name}.cut-{BATCH_BYTES}")
    assert files.read(kept) == torn
    (found,) = log.cuts
    assert (found.path, found.kept_as) == (last, kept)
    assert (found.position, found.size_bytes, found.next_offset) == (BATCH_BYTES, BATCH_BYTES - cut, 10)
    (record,) = caplog.records
    text = record.getMessage()
    for part in (str(last), f"byte {BATCH_BYTES}:", "offset 10;", f"{BATCH_BYTES - cut} bytes", kept.name):
        assert part in text
    _expect(log, 5)
    again = reopened(log)
    assert again.cuts == []
    assert files.read(kept) == torn


@pytest.mark.parametrize("byte", [0, 1, 3, 8, 11, 16, 17, 21, 26, 30, 40, 60, 61, 70, BATCH_BYTES - 1])
def test_a_flipped_bit_in_the_tail_ends_the_log_before_it(byte: int) -> None:
    """The low bytes of the base offset and the leader epoch are under no checksum: nobody can tell them from a gap."""
    files = SimulatedFiles()
    log = _filled(files, 6)
    log.abandon()
    files.flip_bit(log.directory / f"{8:020d}.log", 8 * (BATCH_BYTES + byte) + 7)
    log = _opened(files, log)
    assert len(log.cuts) == 1
    _expect(log, 5)


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(bytes(5), id="few zeros"),
        pytest.param(bytes(5000), id="many zeros, as a machine that crashed leaves them"),
        pytest.param(b"\xff" * 500, id="ones"),
        pytest.param(bytes(batch_of(2)), id="an intact batch that repeats offset 0"),
        pytest.param(b"\x00" * 8 + b"\x7f\xff\xff\xff" + bytes(60), id="a length of 2 GB"),
    ],
)
def test_garbage_behind_the_last_batch_is_cut(garbage: bytes) -> None:
    files = SimulatedFiles()
    log = _filled(files, 6)
    last = log.directory / f"{8:020d}.log"
    files.write_at(last, 2 * BATCH_BYTES, garbage)
    log = reopened(log)
    assert files.size_of(last) == 2 * BATCH_BYTES
    assert files.read(log.cuts[0].kept_as) == garbage
    _expect(log, 6)


def test_a_tail_larger_than_the_buffer_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.storage.cuts.CHUNK_BYTES", 128)
    files = SimulatedFiles()
    log = _filled(files, 2)
    garbage = bytes(range(256)) * 4
    files.write_at(log.directory / f"{FIRST}.log", 2 * BATCH_BYTES, garbage)
    log = reopened(log)
    assert files.read(log.cuts[0].kept_as) == garbage


def test_a_first_segment_that_is_torn_from_its_start_begins_again() -> None:
    files = SimulatedFiles()
    log = _filled(files, 1)
    files.truncate(log.directory / f"{FIRST}.log", 10)
    log = reopened(log)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert log.cuts[0].kept_as.name == f"{FIRST}.log.cut-0"
    _expect(log, 0)


def test_a_torn_tail_of_a_log_that_was_closed_cleanly_is_damage() -> None:
    """Nothing that was called clean is cut: something took bytes that were once on the disk."""
    files = SimulatedFiles()
    log = _filled(files, 6)
    log.close()
    last = log.directory / f"{8:020d}.log"
    files.truncate(last, 2 * BATCH_BYTES - 1)
    with pytest.raises(DamagedSegment, match=f"{last}: damaged at byte {BATCH_BYTES}:"):
        _opened(files, log, CLEAN)
    assert files.size_of(last) == 2 * BATCH_BYTES - 1
    _expect(_opened(files, log), 5)  # whoever says so may have it cut


# -- segments that do not fit together


def test_what_follows_a_segment_that_was_cut_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    """A machine lost the tail of a sealed segment that was not synced yet, and kept the next. Were those offsets kept,
    the log would have a hole that looks as if compaction had made it."""
    files = SimulatedFiles()
    log = _filled(files, 10)
    contents = {base: files.read(log.directory / f"{base:020d}.log") for base in (8, 16)}
    files.truncate(log.directory / f"{FIRST}.log", 3 * BATCH_BYTES + 10)
    with caplog.at_level(logging.WARNING):
        log = reopened(log)
    assert f"{FIRST}.log: cut at byte {3 * BATCH_BYTES}" in caplog.text
    assert base_offsets(log) == [0]
    assert [cut.path.name for cut in log.cuts] == [f"{base:020d}.log" for base in (0, 8, 16)]
    for base, data in contents.items():
        assert files.read(log.directory / f"{base:020d}.log.cut-0") == data
        assert not [name for name in files.sizes_in(log.directory) if name.startswith(f"{base:020d}.") and "in" in name]
    _expect(log, 3)


def test_what_follows_a_segment_that_is_missing_is_set_aside() -> None:
    files = SimulatedFiles()
    log = _filled(files, 10)
    log.abandon()
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(log.directory / f"{8:020d}{suffix}")
    log = _opened(files, log)
    assert [cut.reason for cut in log.cuts] == ["offsets before it are missing"]
    _expect(log, 4)


@pytest.mark.parametrize(
    "trust",
    [
        pytest.param(CLEAN, id="a clean stop"),
        pytest.param(Trust(clean=False, recovery_point=17), id="below the recovery point"),
        pytest.param(Trust(clean=False, cleaned_until=16), id="where compaction was"),
    ],
)
def test_a_gap_is_no_loss_where_compaction_may_have_been(trust: Trust) -> None:
    files = SimulatedFiles()
    log = _filled(files, 10)
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(log.directory / f"{8:020d}{suffix}")
    log = _opened(files, log, trust)
    assert log.cuts == []
    assert offsets_in(log) == [*range(8), *range(16, 20)]


def test_a_segment_that_repeats_offsets_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    log = _filled(files, 3)
    log.close()
    double = encode_batch([Record(4, START_MS, None, b"again")])
    files.write_at(log.directory / f"{4:020d}.log", 0, double)
    log = _opened(files, log)
    assert "repeats offsets" in caplog.text
    assert files.read(log.directory / f"{4:020d}.log.cut-0") == double
    _expect(log, 3)


def test_a_batch_that_repeats_offsets_is_cut() -> None:
    files = SimulatedFiles()
    log = log_in(files.root, files=files)
    log.append(batch_of(5), 0)
    files.write_at(log.directory / f"{FIRST}.log", log.size_bytes, encode_batch([Record(3, START_MS, None, b"again")]))
    log = reopened(log)
    assert log.log_end_offset == 5


def test_a_marker_that_is_none_ends_the_log() -> None:
    """Its checksum is right, but nobody can replay it."""
    files = SimulatedFiles()
    log = log_in(files.root, files=files)
    committed(log, batch_of(2, producer_id=7, transactional=True))
    committed(log, marker_of(7, commit=True))
    key_less = encode_batch([Record(3, START_MS, None, b"")], attributes=0x30, producer_id=7, producer_epoch=0)
    files.write_at(log.directory / f"{FIRST}.log", log.size_bytes, key_less)
    log = reopened(log)
    assert log.log_end_offset == 3
    assert "key of a control record" in log.cuts[0].reason


# -- reading in chunks


def test_batches_larger_than_the_buffer_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK_BYTES", 128)
    files = SimulatedFiles()
    log = log_in(files.root, files=files)
    sizes = [1, 5000, 20, 128, 67, 40, 1000, 2]
    for size in sizes:
        log.append(batch_of(1, value=bytes(size)), 0)
    log = reopened(log)
    assert [len(record.value or b"") for record in records_in(log)] == sizes
    files.flip_bit(log.directory / f"{FIRST}.log", 8 * (log.size_bytes - 500))  # in the batch of 1000
    log = reopened(log)
    assert [len(record.value or b"") for record in records_in(log)] == sizes[:6]


@pytest.mark.parametrize("end", range(1, 400, 7))
def test_chunks_end_anywhere(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    monkeypatch.setattr(scan, "CHUNK_BYTES", 61 + end)
    log = reopened(_filled(SimulatedFiles(), 7, LogConfig()))
    _expect(log, 7)


class _ShrinkingFile:
    """A file of which less is there than was said."""

    path = Path("/sim/shrinking")

    def __init__(self, data: bytes) -> None:
        self._data = data

    def fileno(self) -> int:
        raise NotImplementedError

    def read_at(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]

    def read_into(self, position: int, buffer: memoryview) -> int:
        part = self._data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


@pytest.mark.parametrize("left", [0, 30, 61, 100, 300, 5000])
def test_a_file_that_ends_too_early_is_no_intact_batch(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    monkeypatch.setattr(scan, "CHUNK_BYTES", 128)
    data = bytes(batch_of(1, value=bytes(6000)))
    with pytest.raises(scan.CorruptBatch):
        list(scan.checked_batches(_ShrinkingFile(data[:left]), len(data)))  # type: ignore[arg-type]


# -- crashes and faults in between


def test_a_disk_error_while_reading_cuts_nothing() -> None:
    files = SimulatedFiles()
    log = _filled(files, 3)
    size = log.size_bytes
    log.abandon()
    files.fail("read_into", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        _opened(files, log)
    assert files.size_of(log.directory / f"{FIRST}.log") == size
    _expect(_opened(files, log), 3)


def test_a_full_disk_while_a_tail_is_kept_cuts_nothing() -> None:
    files = SimulatedFiles()
    log = _filled(files, 3)
    log.abandon()
    files.write_at(log.directory / f"{FIRST}.log", 3 * BATCH_BYTES, b"torn")
    files.fail("write_at", errno.ENOSPC, path="*.cut-*")
    with pytest.raises(OSError, match="No space left"):
        _opened(files, log)
    assert files.size_of(log.directory / f"{FIRST}.log") == 3 * BATCH_BYTES + 4
    log = _opened(files, log)
    assert files.read(log.cuts[0].kept_as) == b"torn"
    _expect(log, 3)


def test_a_crash_at_any_step_loses_nothing_that_was_appended() -> None:
    files = SimulatedFiles()
    log = log_in(files.root, _config(index_interval_bytes=0), files=files)
    appended = 0
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        crashed = _opened(files.after_process_crash(), log)
        # The append under way may be in the log already, and the log is not told.
        assert offsets_in(crashed) in (list(range(2 * appended)), list(range(2 * appended + 2)))
        _expect(reopened(crashed), crashed.log_end_offset // 2)

    files.before_operation = look
    for number in range(9):
        log.append(batch_of(2, timestamp_ms=START_MS + 10 * number), 0)
        appended += 1
    log.close()
    assert looks > 30


def test_a_crash_at_any_step_of_recovery_is_recovered() -> None:
    files = SimulatedFiles()
    log = _filled(files, 7)
    files.truncate(log.directory / f"{8:020d}.log", 3 * BATCH_BYTES - 5)
    for name in _indexes(log):
        files.remove(log.directory / name)
    log.abandon()
    files.sync_all()
    for step in range(1, 1000):
        crashing = files.after_process_crash()
        crashing.crash_at = step
        try:
            _opened(crashing, log)
            break
        except Crashed:
            for again in (crashing.after_process_crash(), crashing.after_machine_crash(step)):
                recovered = _opened(again, log)
                cuts = [name for name in again.sizes_in(log.directory) if ".cut-" in name]
                assert cuts == [f"{8:020d}.log.cut-{2 * BATCH_BYTES}"]
                _expect(recovered, 6)
    assert step > 8
