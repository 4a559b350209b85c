"""Checkpoints: what they say of a log, that it is never believed of another, and that a lie costs a scan at most."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of, committed, offsets_in
from tests.support.simulated_files import Crashed, SimulatedFiles

DATA = Path("/sim/data")
RECOVERY_POINTS = DATA / "recovery-point-offset-checkpoint"
LOG_STARTS = DATA / "log-start-offset-checkpoint"
CLEANED = DATA / "cleaner-offset-checkpoint"
ID, OTHER_ID = UUID(int=1), UUID(int=2)
BATCH_BYTES = len(batch_of(2))
CONFIG = LogConfig(segment_bytes=2 * BATCH_BYTES)
VALUE = 75  # a byte that nothing but the CRC covers


def _managed(files: SimulatedFiles, clock: SettableClock | None = None) -> LogManager:
    return LogManager([DATA], CONFIG, files=files, clock=clock)


def _fill(log: PartitionLog, appends: int = 5) -> PartitionLog:
    for number in range(appends):
        committed(log, batch_of(2, timestamp_ms=START_MS + number))
    return log


def test_a_checkpoint_is_kafkas_text() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 3, ID))
    log.flush()
    log.move_start(5)
    _fill(manager.open("payments", 0, ID)).flush()
    manager.open("empty", 0, ID)
    manager.checkpoint()
    assert files.read(RECOVERY_POINTS) == b"0\n2\norders 3 10\npayments 0 10\n"
    assert files.read(LOG_STARTS) == b"0\n1\norders 3 5\n"


def test_a_checkpoint_that_says_nothing_new_is_not_written() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    _fill(manager.open("orders", 0, ID)).flush()
    manager.checkpoint()
    before = files.operations
    manager.checkpoint()
    manager.store_starts()
    assert files.operations == before


def test_only_what_was_flushed_is_behind_the_checkpoint() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID), 3)
    log.flush()
    _fill(log, 2)
    manager.checkpoint()
    assert files.read(RECOVERY_POINTS) == b"0\n1\norders 0 6\n"


@pytest.mark.parametrize("damaged", range(0, 10, 2))
def test_a_killed_manager_scans_what_lies_behind_the_checkpoint(damaged: int) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID), 3)
    log.flush()
    manager.checkpoint()
    _fill(log, 2)
    files = files.after_process_crash()
    base = damaged // 4 * 4
    files.flip_bit(log.directory / f"{base:020d}.log", 8 * ((damaged - base) // 2 * BATCH_BYTES + VALUE))
    log = _managed(files).open("orders", 0, ID)
    assert log.log_end_offset == (10 if damaged < 6 else damaged)


def test_logs_that_nobody_opened_keep_their_entries() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    for partition in range(2):
        log = _fill(manager.open("orders", partition, ID))
        manager.delete_records("orders", partition, 3)
    manager.close()
    before = files.read(RECOVERY_POINTS), files.read(LOG_STARTS)
    manager = _managed(files)
    log = manager.open("orders", 0, ID)
    committed(log, batch_of(1))
    manager.close()
    assert before[1] == files.read(LOG_STARTS)
    assert files.read(RECOVERY_POINTS) == b"0\n2\norders 0 11\norders 1 10\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="gone"),
        pytest.param(b"", id="empty"),
        pytest.param(b"0\n1\norders 0 1", id="cut"),
        pytest.param(b"garbage", id="garbage"),
    ],
)
@pytest.mark.parametrize("path", [RECOVERY_POINTS, CLEANED], ids=lambda path: path.name)
def test_a_checkpoint_that_lies_or_is_lost_costs_no_record(path: Path, text: bytes | None) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    _fill(manager.open("orders", 0, ID)).flush()
    manager.checkpoint()
    files = files.after_process_crash()
    if text is None:
        files.remove(path)
    else:
        files.replace(path, text, durable=True)
    manager = _managed(files)
    log = manager.open("orders", 0, ID)
    assert offsets_in(log) == list(range(10))
    assert log.recovery_point <= 10
    log.flush()
    manager.checkpoint()
    assert b"orders 0 10" in (files.read(RECOVERY_POINTS) or b"")


# -- never of another log


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_known_of_a_deleted_log_is_not_believed_of_the_next(clean: bool) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID))
    log.flush()
    manager.delete_records("orders", 0, 7)
    manager.checkpoint()
    manager.delete("orders", 0)
    for path in (RECOVERY_POINTS, LOG_STARTS):
        assert files.read(path) == b"0\n0\n"
    log = manager.open("orders", 0, OTHER_ID)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    _fill(log, 2)
    if clean:
        manager.close()
    else:
        files = files.after_process_crash()
        files.truncate(log.directory / f"{0:020d}.log", 2 * BATCH_BYTES - 1)
    log = _managed(files).open("orders", 0, OTHER_ID)
    assert offsets_in(log) == list(range(4 if clean else 2))


def test_a_crash_at_any_step_of_a_deletion_leaves_nothing_that_the_next_log_would_believe() -> None:
    def deleted(files: SimulatedFiles) -> None:
        manager = _managed(files)
        manager.open("orders", 0, ID)
        manager.delete("orders", 0)

    start = SimulatedFiles()
    manager = _managed(start)
    _fill(manager.open("orders", 0, ID)).flush()
    manager.delete_records("orders", 0, 7)
    manager.checkpoint()
    start.sync_all()
    for step in range(1, 200):
        files = start.after_process_crash()
        files.crash_at = step
        try:
            deleted(files)
            break
        except Crashed:
            pass
        for crashed in (files.after_process_crash(), files.after_machine_crash(step)):
            manager = _managed(crashed)
            log = manager.open("orders", 0, OTHER_ID, new=True)
            assert (log.log_start_offset, log.log_end_offset) == (0, 0)
            _fill(log, 1)
            torn = crashed.after_process_crash()
            torn.truncate(log.directory / f"{0:020d}.log", 50)
            assert _managed(torn).open("orders", 0, OTHER_ID).log_end_offset == 0
    assert step > 10


def test_the_checkpoints_are_written_once_for_all_partitions_of_a_topic() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    for partition in range(6):
        _fill(manager.open("orders", partition, ID)).flush()
        manager.delete_records("orders", partition, 7)
    manager.checkpoint()
    before = files.operations
    manager.delete("orders", 0, 1, 2, 4, 5, 9)
    steps = files.history[before:]
    for path in (RECOVERY_POINTS, LOG_STARTS):
        assert len([step for step in steps if f"rename {path}.tmp" in step]) == 1
        assert b"\n1\norders 3 " in (files.read(path) or b"")
    assert len([step for step in steps if step.endswith(f"sync {DATA}")]) == 3  # the renames, and two checkpoints
    assert files.directories_in(DATA) == ["orders-3"]


def test_a_partition_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    for partition in range(3):
        _fill(manager.open("orders", partition, ID)).flush()
    manager.checkpoint()
    files.fail("rename", errno.EIO, path=str(DATA / "orders-1"))
    with pytest.raises(OSError, match="Input/output"):
        manager.delete("orders", 0, 1, 2)
    assert files.directories_in(DATA) == ["orders-1"]


def test_a_topic_can_be_deleted_from_a_full_disk() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    for partition in range(2):
        _fill(manager.open("orders", partition, ID)).flush()
    manager.checkpoint()
    files.capacity_bytes = files.used_bytes
    with pytest.raises(OSError, match="No space left"):
        manager.delete("orders", 0)
    assert files.directories_in(DATA) == ["orders-1"]
    log = manager.open("orders", 0, OTHER_ID, new=True)
    assert (log.log_end_offset, log.recovery_point) == (0, 0)


def test_a_log_that_is_set_aside_leaves_no_entry() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    _fill(manager.open("orders", 0, ID)).flush()
    manager.close()
    manager = _managed(files)
    manager.sweep(set(), set())
    assert files.read(RECOVERY_POINTS) == b"0\n0\n"


def _is_free(lock: threading.RLock) -> bool:  # type: ignore[valid-type]
    """Whether another thread could take it."""
    answers: list[bool] = []

    def ask() -> None:
        taken = lock.acquire(blocking=False)  # type: ignore[attr-defined]
        answers.append(taken)
        if taken:
            lock.release()  # type: ignore[attr-defined]

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return answers[0]


def test_no_log_is_deleted_between_the_look_at_it_and_the_checkpoint() -> None:
    """A thread that looked at the log before it was deleted, and stored after that, would bring its offsets back."""
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID))
    log.flush()
    home = manager._homes["orders", 0]
    looks: list[bool] = []

    class Looked(int):
        def __gt__(self, other: int) -> bool:
            looks.append(_is_free(home.storing))
            return int(self) > other

    log._unsynced.recovery_point = Looked(log.recovery_point)
    log.log_start_offset = Looked(3)
    manager.checkpoint()
    log.log_start_offset = Looked(4)
    manager.store_starts()
    assert len(looks) == 3
    assert not any(looks)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda manager: manager.checkpoint(), id="checkpoint"),
        pytest.param(lambda manager: manager.delete_records("orders", 0, 5), id="deletion of records"),
        pytest.param(lambda manager: manager.truncate_to("orders", 0, 5), id="truncation"),
        pytest.param(lambda manager: manager.truncate_fully_and_start_at("orders", 0, 5), id="full truncation"),
        pytest.param(lambda manager: manager.delete("orders", 0), id="deletion"),
    ],
)
def test_two_threads_never_write_the_same_checkpoint(work: Callable[[LogManager], None]) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID))
    log.flush()
    manager.checkpoint()
    _fill(log, 1)
    log.flush()
    home = manager._homes["orders", 0]
    looks: list[bool] = []

    def look() -> None:
        if "-checkpoint" in files.history[-1] and "/orders-0" not in files.history[-1]:
            looks.append(_is_free(home.storing))

    files.before_operation = look
    work(manager)
    assert looks
    assert not any(looks)
    assert _is_free(home.storing)


# -- truncation


@pytest.mark.parametrize(
    "truncate",
    [
        pytest.param(lambda manager: manager.truncate_to("orders", 0, 5), id="to an offset"),
        pytest.param(lambda manager: manager.truncate_fully_and_start_at("orders", 0, 5), id="fully"),
    ],
)
def test_no_checkpoint_is_taken_of_a_log_that_is_being_truncated(truncate: Callable[[LogManager], None]) -> None:
    """It would say again what was lowered for the truncation, and a crash leave a log that ends below that."""
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID))
    log.flush()
    manager.checkpoint()
    home = manager._homes["orders", 0]
    looks: list[bool] = []
    files.before_operation = lambda: looks.append(_is_free(home.storing))
    truncate(manager)
    # Its first operation lowers the checkpoints; from there on none is taken until the log knows its end.
    assert looks
    assert not any(looks)


@pytest.mark.parametrize("to", [0, 1, 3, 4, 5, 9])
def test_a_truncation_is_known_to_the_checkpoints(to: int) -> None:
    """What is appended behind it is not on the disk, whatever was there before; not even if the next flush is far."""
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID))
    log.flush()
    manager.checkpoint()
    manager.truncate_to("orders", 0, to)
    end = to // 2 * 2
    assert log.log_end_offset == end
    _fill(log, 3)
    manager.checkpoint()
    crashed = files.after_process_crash()
    last = max(name for name in crashed.sizes_in(log.directory) if name.endswith(".log"))
    size_bytes = crashed.size_of(log.directory / last) or 0
    if size_bytes:
        crashed.truncate(log.directory / last, size_bytes - 1)
    again = _managed(crashed).open("orders", 0, ID)
    assert offsets_in(again) == list(range(end + (4 if size_bytes else 6)))


def test_a_truncation_within_a_batch_is_known_to_the_checkpoints() -> None:
    """The batch goes whole, so the log ends before the offset, and what comes next may be torn."""
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID))
    log.flush()
    manager.checkpoint()
    manager.truncate_to("orders", 0, 1)
    _fill(log, 1)
    crashed = files.after_process_crash()
    crashed.truncate(log.directory / f"{0:020d}.log", BATCH_BYTES - 1)
    again = _managed(crashed).open("orders", 0, ID)
    assert (again.log_end_offset, len(again.cuts)) == (0, 1)


def test_a_truncation_below_the_start_takes_its_checkpoint_along() -> None:
    """Else what is appended in between would count as deleted."""
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID))
    manager.delete_records("orders", 0, 7)
    manager.truncate_to("orders", 0, 5)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    _fill(log, 3)
    log = _managed(files.after_process_crash()).open("orders", 0, ID)
    assert (log.log_start_offset, offsets_in(log)) == (4, list(range(4, 10)))


@pytest.mark.parametrize("start", [0, 3, 10, 500])
def test_a_log_that_begins_anew_is_known_to_the_checkpoints(start: int) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = _fill(manager.open("orders", 0, ID))
    log.flush()
    manager.delete_records("orders", 0, 7)
    manager.checkpoint()
    manager.truncate_fully_and_start_at("orders", 0, start)
    for _ in range(2):
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (start, start, start)
        log = _managed(files.after_process_crash()).open("orders", 0, ID)
    _fill(manager.items()[0][1], 2)
    log = _managed(files.after_process_crash()).open("orders", 0, ID)
    assert offsets_in(log) == list(range(start, start + 4))


def test_a_truncation_takes_the_mark_of_compaction_along() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    _fill(manager.open("orders", 0, ID))
    manager._homes["orders", 0].note_cleaned(("orders", 0), 8)
    manager.truncate_to("orders", 0, 9)
    assert files.read(CLEANED) == b"0\n1\norders 0 8\n"
    manager.truncate_to("orders", 0, 5)
    assert files.read(CLEANED) == b"0\n1\norders 0 4\n"  # where the log ends now


# -- when to flush


def test_logs_are_flushed_when_they_are_old_or_have_sealed_a_segment() -> None:
    clock = SettableClock(START_MS)
    files = SimulatedFiles(clock)
    manager = _managed(files, clock)
    by_time = manager.open("time", 0, ID, LogConfig(flush_ms=100))
    by_roll = manager.open("roll", 0, ID)
    never = manager.open("never", 0, ID)
    for log in (by_time, by_roll, never):
        committed(log, batch_of(2))
    assert manager.logs_to_flush() == []
    clock.advance(99)
    assert manager.logs_to_flush() == []
    clock.advance(1)
    assert manager.logs_to_flush() == [by_time]
    by_time.flush()
    assert manager.logs_to_flush() == []
    _fill(by_roll, 2)
    assert manager.logs_to_flush() == [by_roll]
    by_roll.flush()
    assert manager.logs_to_flush() == []
    by_time.append(batch_of(1), 0)
    clock.advance(1000)
    by_time.condition.fail(OSError("offline"))
    assert manager.logs_to_flush() == []
