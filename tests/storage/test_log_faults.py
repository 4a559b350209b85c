"""Disks that are full, and disks that fail: a clean error and a log that goes on, or one that is offline for good."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.storage.batch import HEADER_BYTES, check
from pylog.storage.errors import LogOffline
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.ports import Buffer
from pylog.storage.recovery import UNCLEAN
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
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.faults

BATCH_BYTES = len(batch_of(1))
PIECE = 64 << 10
PASSING = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM]
FATAL = [errno.EIO, errno.EROFS, errno.EACCES]


def _named(errors: list[int]) -> list[object]:
    return [pytest.param(error, id=errno.errorcode[error]) for error in errors]


# -- no room


class _FullDisk:
    """os.pwrite that takes some bytes and then has no room, as a disk does that gets full."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._pwrite = os.pwrite

    def __call__(self, descriptor: int, data: Buffer, position: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self._pwrite(descriptor, memoryview(data)[: self.room], position)
        self.room -= count
        return count


@pytest.mark.parametrize("room", [0, 1, HEADER_BYTES, BATCH_BYTES, 2 * BATCH_BYTES - 1])
def test_a_full_disk_refuses_the_append_and_keeps_the_log_well_formed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", _FullDisk(room))
        with pytest.raises(OSError, match="No space left"):
            log.append(batch_of(1) + batch_of(1), 0)
    assert log.log_end_offset == 1
    assert os.path.getsize(log.directory / f"{0:020d}.log") == BATCH_BYTES
    assert len(records_in(log)) == 1
    assert log.append(batch_of(1), 0).base_offset == 1
    assert offsets_in(reopened(log)) == [0, 1]


def test_a_write_that_takes_several_calls_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, memoryview(data)[:7], position))
    log = log_in(tmp_path)
    log.append(batch_of(2), 0)
    assert len(records_in(log)) == 2


@pytest.mark.parametrize("room", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_large_batch_is_written_in_pieces_and_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    large = batch_of(1, value=os.urandom(4 * PIECE))
    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", _FullDisk(room))
        with pytest.raises(OSError, match="No space left"):
            log.append(large, 0)
    assert os.path.getsize(log.directory / f"{0:020d}.log") == BATCH_BYTES
    pwrite, pieces = os.pwrite, list[int]()
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pieces.append(len(data)) or pwrite(fd, data, at))
    log.append(large, 0)
    assert max(pieces) == PIECE
    assert sum(pieces) == len(large)
    written = (log.directory / f"{0:020d}.log").read_bytes()[BATCH_BYTES:]
    assert written[16:] == large[16:], "all but what a log writes anew"
    assert offsets_in(reopened(log)) == [0, 1]


def test_a_torn_write_that_could_not_be_undone_is_undone_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")  # btrfs says so

    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", _FullDisk(300))
        context.setattr(os, "ftruncate", broken)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                log.append(batch_of(2, value=bytes(500)), 0)
        assert len(records_in(log)) == 1
    log.append(batch_of(1), 0)
    assert os.path.getsize(log.directory / f"{0:020d}.log") == 2 * BATCH_BYTES
    assert len(records_in(log)) == 2


@pytest.mark.parametrize("then", ["close", "roll"])
def test_a_torn_write_that_was_never_undone_is_not_left_in_a_log_that_is_called_clean(then: str) -> None:
    files = SimulatedFiles()
    log = log_in(files.root, files=files)
    log.append(batch_of(1), 0)
    for operation in ("append", "truncate"):
        files.fail(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        log.append(batch_of(9), 0)
    if then == "roll":
        log.roll()
    log = reopened(log, clean=True)
    assert files.size_of(log.directory / f"{0:020d}.log") == BATCH_BYTES
    assert offsets_in(log) == [0]


def test_an_interrupted_append_is_overwritten_by_the_next(tmp_path: Path) -> None:
    """A signal handler may raise behind the write, before the log has taken note of it."""
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    with (log.directory / f"{0:020d}.log").open("ab") as file:
        file.write(batch_of(5))
    log.append(batch_of(1), 0)
    assert offsets_in(log) == [0, 1]
    assert check((log.directory / f"{0:020d}.log").read_bytes(), BATCH_BYTES).base_offset == 1
    log = reopened(log, clean=True)
    assert offsets_in(log) == [0, 1]
    assert (log.directory / f"{0:020d}.log").stat().st_size == 2 * BATCH_BYTES


@pytest.mark.parametrize("error", _named(PASSING))
@pytest.mark.parametrize(
    ("operation", "path"),
    [
        pytest.param("append", "*.log", id="append"),
        pytest.param("open_appender", "*.log", id="opening the log"),
        pytest.param("write_at", "*index", id="storing an index"),
        pytest.param("write_at", "*.snapshot.tmp", id="storing the producers"),
        pytest.param("rename", "*.snapshot.tmp", id="naming the producers"),
        pytest.param("create_empty", "*.index", id="the first file of a segment"),
        pytest.param("create_empty", "*.log", id="the last file of a segment"),
    ],
)
def test_a_roll_that_fails_half_way_leaves_a_log_that_goes_on(operation: str, path: str, error: int) -> None:
    files = SimulatedFiles()
    log = log_in(files.root, LogConfig(segment_bytes=3 * BATCH_BYTES, index_interval_bytes=0), files=files)
    for _ in range(3):
        log.append(batch_of(1), 0)
    files.fail(operation, error, path=path, times=2)
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(error)):
            log.append(batch_of(1), 0)
    assert log.log_end_offset == 3
    assert log.failure is None
    assert len(records_in(log)) == 3
    crashed = PartitionLog(log.directory, log.config, UNCLEAN, files=files.after_process_crash())
    assert len(records_in(crashed)) == 3
    assert log.append(batch_of(1), 0).base_offset == 3
    assert base_offsets(log) == [0, 3]
    assert offsets_in(reopened(log, clean=True)) == [0, 1, 2, 3]


@pytest.mark.parametrize("room", range(0, 600, 13))
def test_a_disk_that_gets_full_anywhere_costs_no_record_and_goes_on_when_there_is_room(room: int) -> None:
    files = SimulatedFiles()
    config = LogConfig(segment_bytes=3 * BATCH_BYTES, index_interval_bytes=0)
    log = log_in(files.root, config, files=files)
    appended = 0
    for _ in range(2):
        files.capacity_bytes = files.used_bytes + room
        for _ in range(12):
            try:
                committed(log, batch_of(1, timestamp_ms=START_MS + appended, producer_id=7, sequence=appended), 1)
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017
                break
            appended += 1
        assert offsets_in(log) == list(range(appended))
        files.capacity_bytes = None
        assert committed(log, batch_of(1, producer_id=7, sequence=appended), 1) == appended
        appended += 1
        log = reopened(log)
        assert offsets_in(log) == list(range(appended))


# -- failure


def _filled() -> tuple[SimulatedFiles, PartitionLog]:
    """Three segments, of which nothing is open."""
    files = SimulatedFiles()
    log = log_in(files.root, LogConfig(segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0), files=files)
    for number in range(10):
        committed(log, batch_of(1, timestamp_ms=START_MS + number))
    committed(log, batch_of(1, producer_id=7, transactional=True, timestamp_ms=START_MS + 10))
    committed(log, marker_of(7, commit=False, timestamp_ms=START_MS + 10))
    return files, reopened(log, clean=True)


USES: dict[str, tuple[str, Callable[[PartitionLog], object]]] = {
    "append": ("append", lambda log: log.append(batch_of(1), 0)),
    "opening to append": ("open_appender", lambda log: log.append(batch_of(1), 0)),
    "opening to read": ("open", lambda log: log.read(0, 1)),
    "read": ("read_at", lambda log: log.read(2, 1)),
    "time": ("read_at", lambda log: log.offset_at_time(START_MS)),
    "latest": ("read_at", lambda log: log.offset_of_max_timestamp()),
    "aborted": ("read_at", lambda log: log.aborted_transactions(0, 12)),
    "roll": ("create_empty", lambda log: log.roll()),
    "deletion": ("create_empty", lambda log: (log.move_start(12), log.detach_deleted())),
    "truncation": ("truncate", lambda log: log.truncate_to(9)),
    "truncation of a segment": ("rename", lambda log: log.truncate_to(3)),
    "full truncation": ("create_empty", lambda log: log.truncate_fully_and_start_at(50)),
    "segments": ("read_at", lambda log: log.segments()),
}


@pytest.mark.parametrize("error", _named(FATAL))
@pytest.mark.parametrize("use", USES)
def test_a_disk_that_fails_takes_the_log_offline(use: str, error: int) -> None:
    files, log = _filled()
    operation, work = USES[use]
    files.fail(operation, error, path="*0000*", times=None)
    with pytest.raises(OSError, match=os.strerror(error)):
        work(log)
    assert log.failure is not None
    files.heal()  # too late: only a restart tries again
    for _, again in USES.values():
        with pytest.raises(LogOffline, match=os.strerror(error)):
            again(log)
    with pytest.raises(LogOffline):
        log.close()


@pytest.mark.parametrize("error", _named(PASSING))
@pytest.mark.parametrize("use", [use for use in USES if "truncation" not in use])
def test_what_passes_does_not_take_the_log_offline(use: str, error: int) -> None:
    files, log = _filled()
    operation, work = USES[use]
    files.fail(operation, error, path="*0000*")
    with pytest.raises(OSError, match=os.strerror(error)):
        work(log)
    assert log.failure is None
    work(log)


@pytest.mark.parametrize("use", [use for use in USES if "truncation" in use])
def test_a_truncation_that_fails_half_way_takes_the_log_offline_whatever_the_reason(use: str) -> None:
    """Nobody knows what is left; recovery will tell."""
    files, log = _filled()
    operation, work = USES[use]
    files.fail(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        work(log)
    with pytest.raises(LogOffline):
        log.read(0, 1)
    assert reopened(log).failure is None


def test_an_offline_log_is_well_again_after_a_restart() -> None:
    files, log = _filled()
    files.fail("append", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.append(batch_of(1), 0)
    log = reopened(log)
    assert log.failure is None
    assert log.append(batch_of(1), 0).base_offset == 12
