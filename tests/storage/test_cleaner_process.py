"""The cleaner in a process of its own: same work, same errors, and no process that outlives who asked for it."""

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pylog.storage.cleaner_process import CleanerProcess, error_from_json, error_to_json, run_cleaner
from pylog.storage.disk import DISK
from pylog.storage.errors import CleanerFailed, DamagedSegment, DedupeBufferTooSmall
from pylog.storage.kernels import cleaner_worker
from pylog.storage.kernels.cleaner import clean
from tests.support.compacted_log import CompactedLog, keyed


@pytest.fixture
def log(tmp_path: Path) -> CompactedLog:
    """Three segments that are too large to be merged, and the active one."""
    log = CompactedLog(DISK, tmp_path / "topic-0", segment_bytes=100)
    for value in "123":
        log.append(keyed(("a", value), ("b", value), (value, value)))
        log.roll()
    return log


def files_of(log: CompactedLog, ending: str = "") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.directory.iterdir() if path.name.endswith(ending)}


def unfinished(log: CompactedLog) -> None:
    """What a run has made so far."""
    log.path(0, ".log.cleaned").write_bytes(b"some of it")


def test_it_does_what_is_done_in_process(log: CompactedLog) -> None:
    here = clean(log.plan())
    made = files_of(log, ".cleaned")
    assert len(made) == 9
    assert run_cleaner(log.plan()) == here
    assert files_of(log, ".cleaned") == made


def test_damage_comes_back_as_it_would_in_process(log: CompactedLog) -> None:
    path = log.path(3)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    log.first_dirty_offset = 6  # only the second pass reads it, when the first group is done
    with pytest.raises(DamagedSegment, match="CRC") as caught:
        run_cleaner(log.plan())
    assert (caught.value.path, caught.value.position) == (path, 0)
    assert not files_of(log, ".cleaned")


def test_an_error_of_the_disk_comes_back_as_one(log: CompactedLog) -> None:
    plan = log.plan()
    log.path(3).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        run_cleaner(plan)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(log.path(3)))


def test_a_buffer_that_is_too_small_is_named(log: CompactedLog) -> None:
    with pytest.raises(DedupeBufferTooSmall, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        run_cleaner(log.plan(dedupe_buffer_bytes=24))


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(DamagedSegment(Path("/a"), 7, "why"), id="damage"),
        pytest.param(DedupeBufferTooSmall("too small"), id="any of storage's own"),
        pytest.param(OSError(errno.EIO, "I/O error", "/a"), id="the disk's"),
    ],
)
def test_errors_keep_their_type_and_words(error: Exception) -> None:
    back = error_from_json(error_to_json(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_other_errors_are_the_cleaners_own(log: CompactedLog) -> None:
    assert str(error_from_json(error_to_json(MemoryError("no room")))) == "MemoryError: no room"
    assert isinstance(error_from_json(error_to_json(ZeroDivisionError())), CleanerFailed)


def test_it_can_be_stopped(log: CompactedLog) -> None:
    unfinished(log)
    process = CleanerProcess(log.plan())
    process.stop()
    with pytest.raises(CleanerFailed, match="stopped"):
        process.wait()
    assert not files_of(log, ".cleaned")


def test_its_death_is_an_error_and_leaves_nothing(log: CompactedLog) -> None:
    unfinished(log)
    process = CleanerProcess(log.plan())
    os.kill(process._process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process._process.pid, os.WEXITED | os.WNOWAIT)  # nobody reads the plan any more
    with pytest.raises(CleanerFailed, match="code -9"):
        process.wait()
    assert not files_of(log, ".cleaned")


def test_what_it_says_last_is_part_of_the_error(log: CompactedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.storage.cleaner_process._WORKER", "pylog.storage.kernels.no_such_module")
    with pytest.raises(CleanerFailed, match="no_such_module"):
        run_cleaner(log.plan())


def test_what_it_did_not_finish_saying_does_not_count(log: CompactedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    (log.directory / "says_half.py").write_text("print('{\"result\": [', end='')")
    monkeypatch.setattr("pylog.storage.cleaner_process._WORKER", "says_half")
    monkeypatch.setenv("PYTHONPATH", str(log.directory))
    with pytest.raises(CleanerFailed, match="code 0"):
        run_cleaner(log.plan())


def test_it_runs_behind_everybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    nicer: list[int] = []
    monkeypatch.setattr("os.nice", nicer.append)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))  # nobody has a plan
    cleaner_worker.main()
    assert nicer == [10]


def test_it_ends_with_its_parent(log: CompactedLog) -> None:
    os.mkfifo(log.directory / "fifo")
    (log.directory / "fifo").rename(log.path(0))  # into which nobody ever writes: the worker does not get to its end
    command = [sys.executable, "-m", "pylog.storage.kernels.cleaner_worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        worker.stdin.write(log.plan().to_json().encode() + b"\n")
        worker.stdin.close()
        try:
            assert worker.wait(timeout=60) == 1
        finally:
            worker.kill()
