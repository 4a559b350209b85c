"""What is on the disk when: syncs of files and names, the recovery point, flush.messages and flush.ms."""

import errno
from pathlib import Path

import pytest

from pylog.storage.batch import BatchHeader
from pylog.storage.errors import LogOffline
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.producers import CompletedTransaction, Producers
from pylog.storage.recovery import Trust
from pylog.storage.transactions import Marker
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of, log_in, marker_of, offsets_in, reopened
from tests.support.simulated_files import SimulatedFiles

BATCH_BYTES = len(batch_of(1))
EPOCHS = "leader-epoch-checkpoint"


def _log(config: LogConfig | None = None, clock: SettableClock | None = None) -> tuple[SimulatedFiles, PartitionLog]:
    files = SimulatedFiles()
    return files, log_in(files.root, config, files=files, clock=clock)


def _synced(files: SimulatedFiles, after: int = 0) -> list[str]:
    """The names of what was synced since that operation, in order."""
    steps = (line.split() for line in files.history[after:])
    return [Path(step[2]).name for step in steps if step[1] == "sync"]


def test_flush_syncs_the_active_segment_what_was_sealed_and_the_names() -> None:
    files, log = _log(LogConfig(segment_bytes=BATCH_BYTES))
    before = files.operations
    for _ in range(2):
        log.append(batch_of(1), 0)
    assert _synced(files, before) == []
    log.flush()
    synced = _synced(files, before)
    assert {f"{0:020d}.log", f"{0:020d}.timeindex", f"{1:020d}.log", "topic-0"} <= set(synced)
    assert synced[-1] == "topic-0"
    before = files.operations
    log.flush()
    assert _synced(files, before) == []
    log.append(batch_of(1), 0)
    log.close()
    assert {f"{1:020d}.log", f"{1:020d}.timeindex", f"{2:020d}.log", f"{2:020d}.timeindex", "topic-0"} <= set(
        _synced(files, before)
    )


def test_the_index_of_aborted_transactions_is_synced_with_its_segment() -> None:
    files, log = _log()
    log.append(batch_of(1, producer_id=7, transactional=True), 0)
    log.append(marker_of(7, commit=False), 0)
    before = files.operations
    log.flush()
    assert f"{0:020d}.txnindex" in _synced(files, before)


def test_what_nobody_touched_is_not_synced_again() -> None:
    files, log = _log()
    log.append(batch_of(1), 0)
    log = reopened(log, clean=True)
    before = files.operations
    log.close()
    assert files.operations == before


def test_what_a_killed_process_left_is_synced_before_it_is_called_clean() -> None:
    files, log = _log(LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(3):
        log.append(batch_of(1), 0)
    log = reopened(log)
    before = files.operations
    log.close()
    assert {f"{n:020d}.log" for n in range(3)} | {"topic-0"} <= set(_synced(files, before))


def test_what_is_known_to_be_on_the_disk_is_not_synced_after_a_kill() -> None:
    files, log = _log(LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(3):
        log.append(batch_of(1), 0)
    log.flush()
    log.append(batch_of(1), 0)
    log = reopened(log, Trust(clean=False, recovery_point=3))
    before = files.operations
    log.flush()
    assert not {f"{n:020d}.log" for n in range(2)} & set(_synced(files, before))


def test_indexes_are_synced_at_a_close_that_follows_a_flush() -> None:
    files, log = _log(LogConfig(index_interval_bytes=0))
    for _ in range(3):
        log.append(batch_of(1), 0)
    log.flush()
    before = files.operations
    log.close()
    assert {f"{0:020d}.index", f"{0:020d}.timeindex"} <= set(_synced(files, before))


def test_after_a_flush_a_crash_of_the_machine_takes_nothing() -> None:
    files, log = _log(LogConfig(segment_bytes=2 * BATCH_BYTES))
    files.sync_all()  # the folder itself is the manager's to make durable
    for _ in range(5):
        log.append(batch_of(1), 3)
    log.flush()
    log.append(batch_of(1), 4)
    crashed = files.after_machine_crash(None)  # nothing survives that was not synced
    again = PartitionLog(log.directory, log.config, Trust(clean=False, recovery_point=5), files=crashed)
    assert offsets_in(again) == list(range(5))
    assert [tuple(entry) for entry in again.epochs.entries] == [(3, 0)]
    assert again.cuts == []


# -- the recovery point


def test_the_recovery_point_moves_with_the_flush_and_not_before() -> None:
    _, log = _log(LogConfig(segment_bytes=2 * BATCH_BYTES))
    assert log.recovery_point == 0
    for number in range(1, 6):
        log.append(batch_of(1), 0)
        assert log.recovery_point == (number - 1) // 2 * 2
        if number % 2 == 0:
            log.flush()
            assert log.recovery_point == number
    assert reopened(log, clean=True).recovery_point == 5


def test_after_an_unclean_stop_the_recovery_point_is_what_was_known() -> None:
    _, log = _log()
    for _ in range(3):
        log.append(batch_of(1), 0)
    log = reopened(log, Trust(clean=False, recovery_point=2))
    assert log.recovery_point == 2
    log.flush()
    assert log.recovery_point == 3


def test_an_aborted_transaction_that_is_not_in_its_index_holds_the_recovery_point_back() -> None:
    """Below it nobody would replay the marker."""
    files, log = _log()
    log.append(batch_of(1, producer_id=7, transactional=True), 0)
    log.flush()
    files.fail("write_at", errno.ENOSPC, path="*.txnindex", times=None)
    log.append(marker_of(7, commit=False), 0)
    log.advance_high_watermark(2)
    assert [entry[:3] for entry in log.aborted_transactions(0, 2)] == [(7, 0, 1)]
    log.flush()
    assert log.recovery_point == 1
    files.heal()
    log.append(batch_of(1, producer_id=7, sequence=1, transactional=True), 0)
    log.append(marker_of(7, commit=False), 0)
    log.flush()
    assert log.recovery_point == 4
    assert [entry[:3] for entry in log.aborted_transactions(0, 4)] == [(7, 0, 1), (7, 2, 3)]


# -- when to flush


def test_flush_messages_counts_from_the_last_flush() -> None:
    _, log = _log(LogConfig(flush_messages=3))
    due = []
    for _ in range(7):
        log.append(batch_of(1), 0)
        due.append(log.flush_is_due)
        if log.flush_is_due:
            log.flush()
            assert not log.flush_is_due
    assert due == [False, False, True, False, False, True, False]


def test_a_truncation_does_not_make_a_flush_late() -> None:
    _, log = _log(LogConfig(flush_messages=3))
    for _ in range(4):
        log.append(batch_of(1), 0)
    log.flush()
    log.truncate_to(1)
    for due in (False, False, True):
        log.append(batch_of(1), 0)
        assert log.flush_is_due == due


def test_unflushed_since_is_the_time_of_the_first_append_behind_the_flush() -> None:
    clock = SettableClock(START_MS)
    _, log = _log(clock=clock)
    assert log.unflushed_since_ms is None
    for _ in range(2):
        log.append(batch_of(1), 0)
        clock.advance(10)
    assert log.unflushed_since_ms == START_MS
    log.flush()
    assert log.unflushed_since_ms is None
    log.append(batch_of(1), 0)
    assert log.unflushed_since_ms == START_MS + 20


# -- logs that go meanwhile


def test_a_log_that_is_deleted_while_it_is_flushed_is_no_failure() -> None:
    files, log = _log(LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(3):
        log.append(batch_of(1), 0)

    def delete() -> None:
        files.before_operation = None
        log.abandon()
        files.remove_tree(log.directory)

    files.before_operation = delete
    log.flush()
    assert log.failure is None


def test_a_segment_that_is_deleted_while_it_is_flushed_is_no_failure() -> None:
    files, log = _log(LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(4):
        log.append(batch_of(1), 0)
    log.advance_high_watermark(4)

    def delete() -> None:
        files.before_operation = None
        log.move_start(2)
        for base_offset in log.detach_deleted():
            for suffix in (".log", ".index", ".timeindex"):
                files.remove(log.directory / f"{base_offset:020d}{suffix}")

    files.before_operation = delete
    log.flush()
    assert (log.failure, log.recovery_point) == (None, 4)


def test_a_segment_that_is_gone_though_nobody_deleted_it_is_a_failure() -> None:
    files, log = _log(LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(3):
        log.append(batch_of(1), 0)
    files.remove(log.directory / f"{0:020d}.log")
    with pytest.raises(LogOffline, match="No such file"):
        log.flush()
    assert log.recovery_point == 0


# -- a sync that fails


@pytest.mark.parametrize(
    "path", ["*0000.log", "*0001.log", "*.timeindex", "*/topic-0", f"*/{EPOCHS}*"], ids=lambda path: path
)
def test_a_flush_that_failed_takes_the_log_offline_and_is_never_tried_again(path: str) -> None:
    files, log = _log(LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(2):
        log.append(batch_of(1), 0)
    files.fail("sync", errno.EIO, path=path)
    with pytest.raises(LogOffline, match="Input/output"):
        log.flush()
    assert log.recovery_point == 0
    assert isinstance(log.failure, OSError)
    before = files.operations
    for use in (log.flush, log.close, lambda: log.append(batch_of(1), 0), lambda: log.read(0, 1)):
        with pytest.raises(LogOffline):
            use()
    assert files.operations == before


@pytest.mark.parametrize("path", ["*.log", "*.timeindex", "*.snapshot", "*/topic-0"], ids=lambda path: path)
def test_a_close_whose_sync_failed_does_not_succeed_the_second_time(path: str) -> None:
    files, log = _log()
    log.append(batch_of(1, producer_id=7), 0)
    files.fail("sync", errno.EIO, path=path)
    for _ in range(2):
        with pytest.raises((LogOffline, OSError), match="Input/output"):
            log.close()
    assert log.failure is not None


@pytest.mark.parametrize("operation", ["open", "open_appender", "read_at", "sync"])
def test_a_flush_that_has_no_descriptor_to_work_with_may_be_tried_again(operation: str) -> None:
    """Nothing was synced, so nothing is lost."""
    files, log = _log(LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(3):
        log.append(batch_of(1), 0)
    files.fail(operation, errno.EMFILE, times=1)
    for _ in range(2):
        try:
            log.flush()
            break
        except OSError:
            assert log.recovery_point == 0
    assert log.failure is None
    assert log.recovery_point == 3
    assert {f"{n:020d}.log" for n in range(3)} | {"topic-0"} <= set(_synced(files))


def test_a_full_disk_that_cannot_take_the_epochs_does_not_take_the_log_offline() -> None:
    files, log = _log()
    files.fail("write_at", errno.ENOSPC, path=f"*{EPOCHS}*", times=None)
    log.append(batch_of(1), 5)
    log.flush()
    assert (log.failure, log.recovery_point) == (None, 0)  # the epochs are not on the disk
    assert offsets_in(log) == [0]
    files.heal()
    log.append(batch_of(1), 5)
    log.flush()
    assert log.recovery_point == 2
    assert files.read(log.directory / EPOCHS) == b"0\n1\n5 0\n"


def test_a_flush_in_the_middle_of_anything_promises_no_more_than_it_has_synced() -> None:
    """As from another thread, before any step that an append, a roll, a deletion or a truncation takes on the disk."""

    def work(log: PartitionLog) -> None:
        for number in range(6):
            log.append(batch_of(1, producer_id=7, sequence=number, transactional=True), number // 2)
            log.advance_high_watermark(log.log_end_offset)
        log.append(marker_of(7, commit=False), 3)
        log.move_start(1)
        log.detach_deleted()
        log.append(batch_of(1), 4)

    config = LogConfig(segment_bytes=3 * BATCH_BYTES, index_interval_bytes=0)
    promised = []
    for step in range(1, 1000):
        files, log = _log(config)
        files.sync_all()
        first = files.operations

        def flush(files: SimulatedFiles = files, log: PartitionLog = log, at: int = first + step) -> None:
            if files.operations == at:
                files.before_operation = None
                log.flush()
                crashed = files.after_machine_crash(None)
                trust = Trust(clean=False, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)
                again = PartitionLog(log.directory, config, trust, files=crashed)
                assert again.log_end_offset >= log.recovery_point
                assert again.recovery_point == log.recovery_point
                promised.append(log.recovery_point)

        files.before_operation = flush
        work(log)
        if files.before_operation is not None:
            break
    assert step > 40
    assert set(promised) >= set(range(8))


def test_a_flush_between_a_write_and_its_mark_syncs_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from another thread: the batch is in the log, and the append has yet to say so."""
    files, log = _log()
    log.append(batch_of(1, producer_id=7), 0)
    log.flush()
    files.sync_all()
    applied = Producers.applied

    def flushed(producers: Producers, header: BatchHeader, marker: Marker | None = None) -> CompletedTransaction | None:
        log.flush()
        crashed = files.after_machine_crash(None)
        trust = Trust(clean=False, recovery_point=log.recovery_point)
        monkeypatch.undo()
        assert PartitionLog(log.directory, log.config, trust, files=crashed).log_end_offset == log.recovery_point == 2
        return applied(producers, header, marker)

    monkeypatch.setattr(Producers, "applied", flushed)
    log.append(batch_of(1, producer_id=7, sequence=1), 0)
