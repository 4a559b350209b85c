"""What is left of a log after a crash: all that was whole, nothing that was torn, and indexes that fit."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.storage import files, recovery
from pylog.storage.batch import pack_header, read_header
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import Record, encode_batch
from pylog.storage.recovery import Trust
from tests.support.logs import START_MS, batch_of, log_in, records_in, reopened

pytestmark = pytest.mark.faults

BATCH_BYTES = len(batch_of(2))
FIRST = f"{0:020d}"


def _config(**fields: int) -> LogConfig:
    return LogConfig(**{"segment_bytes": 4 * BATCH_BYTES, "index_interval_bytes": BATCH_BYTES, **fields})


def _filled(directory: Path, appends: int = 10, config: LogConfig | None = None) -> PartitionLog:
    log = log_in(directory, config or _config())
    for number in range(appends):
        log.append(batch_of(2, timestamp_ms=START_MS + 10 * number), 0)
    return log


def _indexes(log: PartitionLog) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(log.directory.glob("*index"))}


def _expect(log: PartitionLog, appends: int) -> None:
    """The log holds so many appends of `_filled`, finds them by time, and takes another."""
    assert log.log_end_offset == 2 * appends
    assert [record.offset for record in records_in(log)] == list(range(2 * appends))
    for offset in range(2 * appends):
        timestamp_ms = START_MS + 10 * (offset // 2) + offset % 2
        assert log.offset_at_time(timestamp_ms) == (timestamp_ms, offset)
    assert log.append(batch_of(1), 0).base_offset == 2 * appends


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_was_closed_is_the_same_when_opened(tmp_path: Path, clean: bool) -> None:
    log = _filled(tmp_path)
    log.close()
    before = _indexes(log)
    log = PartitionLog(log.directory, log.config, Trust(clean=clean))
    if clean:
        assert _indexes(log) == before
    _expect(log, 10)


@pytest.mark.parametrize("appends", range(1, 10))
def test_a_killed_process_loses_nothing_that_was_appended(tmp_path: Path, appends: int) -> None:
    log = reopened(_filled(tmp_path, appends), clean=False)
    _expect(log, appends)


def test_indexes_that_recovery_builds_are_those_that_a_close_leaves(tmp_path: Path) -> None:
    config = _config(segment_bytes=9 * BATCH_BYTES)
    closed = _filled(tmp_path / "closed", 30, config)
    closed.close()
    killed = _filled(tmp_path / "killed", 30, config)
    for path in killed.directory.glob("*index"):
        path.unlink()
    reopened(killed, clean=False).close()
    assert _indexes(killed) == _indexes(closed)
    assert len(_indexes(closed)) == 8


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> PartitionLog:
    """Two segments; the second holds two batches, which no index entry names in its file."""
    log = _filled(tmp_path_factory.mktemp("killed"), 6)
    log.abandon()
    return log


def _copy_of(log: PartitionLog, directory: Path) -> tuple[Path, Path]:
    """(copy of the log's directory, its last segment)."""
    copy = directory / "topic-0"
    shutil.copytree(log.directory, copy)
    return copy, max(copy.glob("*.log"))


@pytest.mark.parametrize("cut", range(1, BATCH_BYTES + 1))
def test_a_tail_cut_at_any_byte_ends_with_the_last_whole_batch(
    tmp_path: Path, killed: PartitionLog, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    copy, last = _copy_of(killed, tmp_path)
    os.truncate(last, 2 * BATCH_BYTES - cut)
    with caplog.at_level(logging.WARNING):
        log = PartitionLog(copy, killed.config, Trust(clean=False))
    assert last.stat().st_size == BATCH_BYTES
    if cut < BATCH_BYTES:
        (record,) = caplog.records
        text = record.getMessage()
        assert str(last) in text
        assert f"byte {BATCH_BYTES}," in text
        assert f"{BATCH_BYTES - cut} bytes" in text
    else:
        assert not caplog.records
    _expect(log, 5)


@pytest.mark.parametrize("byte", [0, 1, 3, 8, 11, 16, 17, 21, 26, 30, 40, 60, 61, 70, BATCH_BYTES - 1])
def test_a_flipped_bit_in_the_tail_ends_the_log_before_it(tmp_path: Path, killed: PartitionLog, byte: int) -> None:
    """The low bytes of the base offset and the leader epoch are under no checksum: nobody can tell them from a gap."""
    copy, last = _copy_of(killed, tmp_path)
    data = bytearray(last.read_bytes())
    data[BATCH_BYTES + byte] ^= 0x80
    last.write_bytes(data)
    log = PartitionLog(copy, killed.config, Trust(clean=False))
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
def test_garbage_behind_the_last_batch_is_cut(tmp_path: Path, killed: PartitionLog, garbage: bytes) -> None:
    copy, last = _copy_of(killed, tmp_path)
    with last.open("ab") as file:
        file.write(garbage)
    log = PartitionLog(copy, killed.config, Trust(clean=False))
    assert last.stat().st_size == 2 * BATCH_BYTES
    _expect(log, 6)


def test_a_torn_tail_is_found_even_where_the_stop_is_said_to_be_clean(tmp_path: Path) -> None:
    log = _filled(tmp_path, 6)
    log.close()
    os.truncate(max(log.directory.glob("*.log")), 2 * BATCH_BYTES - 1)
    _expect(PartitionLog(log.directory, log.config, Trust(clean=True)), 5)


def test_a_first_segment_that_is_torn_from_its_start_begins_again(tmp_path: Path) -> None:
    log = _filled(tmp_path, 1)
    os.truncate(log.directory / f"{FIRST}.log", 10)
    log = reopened(log, clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    _expect(log, 0)


def test_an_empty_last_segment_is_where_the_log_goes_on(tmp_path: Path) -> None:
    """A crash between the roll and its append."""
    log = _filled(tmp_path, 4)
    log.close()
    (log.directory / f"{8:020d}.log").touch()
    _expect(PartitionLog(log.directory, log.config, Trust(clean=False)), 4)
    assert (log.directory / f"{8:020d}.log").stat().st_size > 0


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_without_its_log_goes(tmp_path: Path, clean: bool) -> None:
    log = _filled(tmp_path, 3)
    log.close()
    for suffix in (".index", ".timeindex"):
        (log.directory / f"{6:020d}{suffix}").write_bytes(bytes(24))
    log = PartitionLog(log.directory, log.config, Trust(clean=clean))
    assert not list(log.directory.glob(f"{6:020d}*"))
    _expect(log, 3)


def test_files_of_others_stay(tmp_path: Path) -> None:
    log = _filled(tmp_path, 3)
    names = ["partition.metadata", "leader-epoch-checkpoint", f"{FIRST}.snapshot", f"{FIRST}.txnindex", "123.log"]
    for name in names:
        (log.directory / name).write_bytes(b"kept")
    reopened(log, clean=False)
    assert all((log.directory / name).read_bytes() == b"kept" for name in names)


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _less_an_entry(path: Path) -> None:
    os.truncate(path, path.stat().st_size - (12 if path.name.endswith(".timeindex") else 8))


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _zeros_behind(path: Path) -> None:
    """As Kafka leaves the index of its active segment, allocated in advance."""
    path.write_bytes(path.read_bytes() + bytes(2400))


def _ones(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


def _random(path: Path) -> None:
    path.write_bytes(b"\x3a\x91\x07\x55" * (path.stat().st_size // 4))


def _surplus(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x01")


def _wrong_offset(path: Path) -> None:
    """The last entry names an offset that its segment does not end a batch with."""
    data = bytearray(path.read_bytes())
    data[-1 if path.name.endswith(".timeindex") else -5] += 41
    path.write_bytes(data)


DAMAGE = [_wrong_offset, _remove, _empty, _half, _less_an_entry, _zeros, _zeros_behind, _ones, _random, _surplus]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("segment", ["sealed", "last"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_built_again(
    tmp_path: Path, damage: Callable[[Path], None], segment: str, suffix: str
) -> None:
    log = _filled(tmp_path, 12, _config(segment_bytes=8 * BATCH_BYTES))
    log.close()
    before = _indexes(log)
    paths = sorted(log.directory.glob(f"*{suffix}"))
    damage(paths[0] if segment == "sealed" else paths[-1])
    log = PartitionLog(log.directory, log.config, Trust(clean=False))
    _expect(log, 12)
    log.abandon()
    assert _indexes(log)[paths[0].name] == before[paths[0].name]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("segment", ["sealed", "last"])
@pytest.mark.parametrize("damage", [_remove, _surplus])
def test_an_index_that_is_missing_or_odd_is_noticed_after_a_clean_stop(
    tmp_path: Path, damage: Callable[[Path], None], segment: str, suffix: str
) -> None:
    log = _filled(tmp_path, 12, _config(segment_bytes=8 * BATCH_BYTES))
    log.close()
    paths = sorted(log.directory.glob(f"*{suffix}"))
    damage(paths[0] if segment == "sealed" else paths[-1])
    _expect(PartitionLog(log.directory, log.config, Trust(clean=True)), 12)


def test_damage_inside_a_sealed_segment_does_not_cost_the_batches_behind_it(tmp_path: Path) -> None:
    log = _filled(tmp_path, 6)
    sealed = log.directory / f"{FIRST}.log"
    data = bytearray(sealed.read_bytes())
    data[BATCH_BYTES + 70] ^= 1
    sealed.write_bytes(data)
    (log.directory / f"{FIRST}.index").unlink()
    log = reopened(log, clean=False)
    assert log.log_end_offset == 12
    assert sealed.read_bytes() == data
    for offset in (0, 4, 6, 8):
        assert log.read(offset, 1) is not None


def test_a_sealed_segment_whose_tail_a_machine_lost_leaves_a_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was not synced yet, the one behind it was: what there is stays readable, and no offset is given twice."""
    log = _filled(tmp_path, 6)
    os.truncate(log.directory / f"{FIRST}.log", 3 * BATCH_BYTES + 10)
    with caplog.at_level(logging.WARNING):
        log = reopened(log, clean=False)
    assert f"{FIRST}.log: cut at byte {3 * BATCH_BYTES}" in caplog.text
    assert [record.offset for record in records_in(log)] == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]
    assert log.append(batch_of(1), 0).base_offset == 12


def test_a_segment_that_repeats_offsets_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = _filled(tmp_path, 3)
    double = encode_batch([Record(4, START_MS, None, b"again")])
    (log.directory / f"{4:020d}.log").write_bytes(double)
    log = reopened(log, clean=False)
    assert "repeats offsets" in caplog.text
    assert (log.directory / f"{4:020d}.log.overlapping").read_bytes() == double
    _expect(log, 3)


def test_a_batch_that_repeats_offsets_is_cut(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(5), 0)
    with (log.directory / f"{FIRST}.log").open("ab") as file:
        file.write(encode_batch([Record(3, START_MS, None, b"again")]))
    log = reopened(log, clean=False)
    assert log.log_end_offset == 5


def test_batches_larger_than_the_buffer_are_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_CHUNK_BYTES", 128)
    log = log_in(tmp_path)
    sizes = [1, 5000, 20, 128, 67, 40, 1000, 2]
    for size in sizes:
        log.append(batch_of(1, value=bytes(size)), 0)
    log = reopened(log, clean=False)
    assert [len(record.value or b"") for record in records_in(log)] == sizes
    data = bytearray((log.directory / f"{FIRST}.log").read_bytes())
    data[-500] ^= 1  # in the batch of 1000
    (log.directory / f"{FIRST}.log").write_bytes(data)
    log = reopened(log, clean=False)
    assert [len(record.value or b"") for record in records_in(log)] == sizes[:6]


@pytest.mark.parametrize("end", range(1, 400, 7))
def test_chunks_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    monkeypatch.setattr(recovery, "_CHUNK_BYTES", 61 + end)
    log = reopened(_filled(tmp_path, 7, LogConfig()), clean=False)
    _expect(log, 7)


def test_a_disk_error_while_reading_cuts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    log = _filled(tmp_path, 3)
    size = log.size_bytes
    log.abandon()
    with monkeypatch.context() as context:
        context.setattr(os, "preadv", broken)
        with pytest.raises(OSError, match="Input/output"):
            PartitionLog(log.directory, log.config, Trust(clean=False))
    assert (log.directory / f"{FIRST}.log").stat().st_size == size
    _expect(PartitionLog(log.directory, log.config, Trust(clean=False)), 3)


def test_a_crash_at_any_call_to_the_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory as it is before every call that changes it, opened as after kill -9."""
    log = log_in(tmp_path / "live", _config(index_interval_bytes=0))
    appended = 0
    crashes: list[tuple[Path, int]] = []

    def before(name: str) -> Callable[..., object]:
        work: Callable[..., object] = getattr(files, name)

        def recorded(*arguments: object, **keywords: object) -> object:
            copy = tmp_path / f"crash-{len(crashes)}"
            shutil.copytree(log.directory, copy)
            crashes.append((copy, appended))
            return work(*arguments, **keywords)

        return recorded

    with monkeypatch.context() as context:
        for name in ("write_at", "create_empty", "truncate", "replace", "remove", "rename", "sync"):
            context.setattr(files, name, before(name))
        for number in range(9):
            log.append(batch_of(2, timestamp_ms=START_MS + 10 * number), 0)
            appended += 1
        log.close()
    assert len(crashes) > 10
    for copy, count in crashes:
        crashed = PartitionLog(copy, log.config, Trust(clean=False))
        assert [record.offset for record in records_in(crashed)] == list(range(2 * count))
        again = reopened(crashed, clean=False)
        _expect(again, count)


def test_a_crash_in_the_middle_of_recovery_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _filled(tmp_path, 7)
    os.truncate(max(log.directory.glob("*.log")), 3 * BATCH_BYTES - 5)
    for path in log.directory.glob("*index"):
        path.unlink()
    log.abandon()

    class Crash(Exception):
        pass

    for calls in range(12):
        left = [calls]

        def crashing(work: Callable[..., object], left: list[int] = left) -> Callable[..., object]:
            def call(*arguments: object, **keywords: object) -> object:
                if not left[0]:
                    raise Crash
                left[0] -= 1
                return work(*arguments, **keywords)

            return call

        copy = tmp_path / f"crash-{calls}"
        shutil.copytree(log.directory, copy)
        with monkeypatch.context() as context:
            for name in ("write_at", "truncate", "replace"):
                context.setattr(files, name, crashing(getattr(files, name)))
            try:
                PartitionLog(copy, log.config, Trust(clean=False))
            except Crash:
                pass
            else:
                assert calls > 3
        _expect(PartitionLog(copy, log.config, Trust(clean=False)), 6)


def test_time_index_entries_count_from_the_largest_timestamp_of_the_log(tmp_path: Path) -> None:
    """Recovery of a segment whose batches overstate or lack their times."""
    log = log_in(tmp_path, _config(index_interval_bytes=0))
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
