"""What the log knows of its producers: repeats are answered, gaps refused, and a restart changes nothing of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.storage.errors import InvalidTransactionState, OutOfOrderSequence, StaleProducerEpoch
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.producers import Producers, ProducerView
from pylog.storage.recovery import Trust
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of, committed, log_in, marker_of, offsets_in, records_in, reopened

BATCH_BYTES = len(batch_of(1, producer_id=7))


def _sent(
    number: int, *, producer_id: int = 7, count: int = 2, epoch: int = 0, timestamp_ms: int = START_MS
) -> bytearray:
    """The batch with this number of a producer whose batches have two records each."""
    return batch_of(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=count * number,
        timestamp_ms=timestamp_ms + 10 * number,
    )


def _views(log: PartitionLog) -> list[ProducerView]:
    return sorted(log.producers.views())


def _as_told_by_the_batches(log: PartitionLog) -> list[ProducerView]:
    """The state of a log that is opened without any snapshot, and has to read everything."""
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    return _views(PartitionLog(log.directory, log.config, Trust(clean=False)))


# -- appending


def test_a_repeat_is_answered_with_its_first_offsets(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    for number in range(6):
        assert log.append(_sent(number), 0) == (1 + 2 * number, 2 + 2 * number, -1, False)
    for number in range(1, 6):  # the last five are known
        assert log.append(_sent(number), 0) == (1 + 2 * number, 2 + 2 * number, -1, True)
    with pytest.raises(OutOfOrderSequence):
        log.append(_sent(0), 0)
    assert log.log_end_offset == 13
    assert offsets_in(log) == list(range(13))


def test_a_repeat_in_a_log_of_append_time_has_the_time_of_the_first(tmp_path: Path) -> None:
    clock = SettableClock(START_MS)
    log = log_in(tmp_path, LogConfig(log_append_time=True), clock=clock)
    log.append(_sent(0), 0)
    clock.advance(5000)
    assert log.append(_sent(0), 0) == (0, 1, START_MS, True)
    assert log.append(_sent(1), 0) == (2, 3, START_MS + 5000, False)


def test_a_repeat_that_comes_with_something_new_is_refused_whole(tmp_path: Path) -> None:
    """To answer it as a repeat would lose what is new."""
    log = log_in(tmp_path)
    log.append(_sent(0), 0)
    for others in (batch_of(1), _sent(0, producer_id=8), _sent(1)):
        for batches in (_sent(0) + others, others + _sent(0)):
            with pytest.raises(OutOfOrderSequence):
                log.append(batches, 0)
    assert log.log_end_offset == 2
    assert log.producers.view(8) is None


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(_sent(3, epoch=1), OutOfOrderSequence, id="a gap"),
        pytest.param(_sent(1, count=3, epoch=1), OutOfOrderSequence, id="a part of a batch again"),
        pytest.param(_sent(0, epoch=0), StaleProducerEpoch, id="an older epoch"),
        pytest.param(_sent(1, epoch=2), OutOfOrderSequence, id="a new epoch that does not begin with 0"),
        pytest.param(_sent(2, epoch=1) + _sent(4, epoch=1), OutOfOrderSequence, id="a gap within the append"),
        pytest.param(_sent(2, epoch=1) + _sent(0, epoch=0), StaleProducerEpoch, id="an older epoch within the append"),
        pytest.param(marker_of(7, commit=True, producer_epoch=0), StaleProducerEpoch, id="marker of an older epoch"),
    ],
)
def test_what_does_not_follow_is_refused_and_leaves_no_trace(
    tmp_path: Path, batch: bytearray, error: type[Exception]
) -> None:
    log = log_in(tmp_path)
    for number in range(2):
        log.append(_sent(number, epoch=1), 0)
    before = _views(log)
    with pytest.raises(error):
        log.append(batch, 0)
    assert _views(log) == before
    assert log.append(_sent(2, epoch=1) + _sent(3, epoch=1), 0).base_offset == 4


def test_a_batch_outside_of_the_open_transaction_is_refused(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(2, producer_id=7, transactional=True), 0)
    with pytest.raises(InvalidTransactionState):
        log.append(_sent(1), 0)


# -- restarts


def _with_three_producers(directory: Path) -> PartitionLog:
    """Several segments; two producers, one of them in a transaction, and a third whose records are in the first."""
    log = log_in(directory, LogConfig(segment_bytes=5 * BATCH_BYTES, index_interval_bytes=BATCH_BYTES))
    committed(log, _sent(0, producer_id=9))
    for number in range(8):
        committed(log, _sent(number))
        committed(log, batch_of(1, producer_id=8, sequence=number, transactional=True))
        if number in (2, 5):
            committed(log, marker_of(8, commit=number == 2, coordinator_epoch=number))
    return log


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_changes_nothing_of_what_is_known(tmp_path: Path, clean: bool) -> None:
    log = _with_three_producers(tmp_path)
    before, stable = _views(log), log.last_stable_offset
    assert stable < log.log_end_offset
    for _ in range(3):
        log = reopened(log, clean=clean)
        assert _views(log) == before
        assert log.last_stable_offset == stable
    assert log.append(_sent(7), 0).duplicate
    assert not log.append(_sent(8), 0).duplicate


@pytest.mark.parametrize("recovery_point", [0, 1, 7, 12, 26, 1000])
def test_what_is_known_does_not_depend_on_the_recovery_point(tmp_path: Path, recovery_point: int) -> None:
    log = _with_three_producers(tmp_path)
    recovery_point = min(recovery_point, log.log_end_offset)
    before = _views(log)
    log = reopened(log, Trust(clean=False, recovery_point=recovery_point))
    assert _views(log) == before


def _all_gone(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        path.unlink()


def _newest_gone(directory: Path) -> None:
    max(directory.glob("*.snapshot")).unlink()


def _newest_empty(directory: Path) -> None:
    os.truncate(max(directory.glob("*.snapshot")), 0)


def _newest_cut(directory: Path) -> None:
    path = max(directory.glob("*.snapshot"))
    os.truncate(path, path.stat().st_size - 1)


def _all_flipped(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        data = bytearray(path.read_bytes())
        data[-3] ^= 4
        path.write_bytes(data)


def _from_the_future(directory: Path) -> None:
    """As a stop in the middle of a truncation leaves it."""
    producers = Producers()
    (directory / f"{10**6:020d}.snapshot").write_bytes(producers.snapshot())


LOSSES = [_all_gone, _newest_gone, _newest_empty, _newest_cut, _all_flipped, _from_the_future]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_or_damaged_snapshot_costs_a_scan_after_an_unclean_stop(
    tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    log = _with_three_producers(tmp_path)
    before = _views(log)
    log.close()
    loss(log.directory)
    log = PartitionLog(log.directory, log.config, Trust(clean=False))
    assert _views(log) == before


@pytest.mark.parametrize("loss", LOSSES[1:])
def test_a_lost_or_damaged_snapshot_costs_a_scan_after_a_clean_stop(
    tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    log = _with_three_producers(tmp_path)
    before = _views(log)
    log.close()
    loss(log.directory)
    log = PartitionLog(log.directory, log.config, Trust(clean=True))
    assert _views(log) == before


def test_a_snapshot_that_was_damaged_is_replaced_by_the_next_close(tmp_path: Path) -> None:
    log = _with_three_producers(tmp_path)
    before = _views(log)
    log.close()
    _all_flipped(log.directory)
    log = reopened(PartitionLog(log.directory, log.config, Trust(clean=True)), clean=True)
    assert _views(log) == before


def test_the_newest_of_a_log_without_producers_is_not_asked_for(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(3), 0)
    log.close()
    assert not list(log.directory.glob("*.snapshot"))
    assert _views(PartitionLog(log.directory, log.config, Trust(clean=True))) == []


def test_snapshots_are_kept_where_segments_begin_and_where_the_log_was_closed(tmp_path: Path) -> None:
    log = _with_three_producers(tmp_path)
    bases = [segment.base_offset for segment in log.segments()]
    log = reopened(log, clean=True)
    names = sorted(path.name for path in log.directory.glob("*.snapshot"))
    assert names == [f"{offset:020d}.snapshot" for offset in [*bases[1:], log.log_end_offset]]
    log.append(_sent(8), 0)
    log = reopened(log, clean=True)
    names = [path.name for path in log.directory.glob("*.snapshot")]
    assert f"{log.log_end_offset:020d}.snapshot" in names
    assert len(names) == len(log.segments())  # the one of the first close is nobody's


# -- truncation and deletion


@pytest.mark.parametrize("to", [0, 1, 2, 7, 12, 13, 20, 25])
def test_after_a_truncation_the_log_knows_what_its_batches_tell(tmp_path: Path, to: int) -> None:
    log = _with_three_producers(tmp_path)
    log.truncate_to(to)
    assert log.log_end_offset <= to
    live, stable = _views(log), log.last_stable_offset
    log.flush()
    assert _as_told_by_the_batches(log) == live
    records = records_in(log)
    sequences = {record.offset for record in records}
    assert all(view.last_data_offset in sequences for view in live if view.last_data_offset >= 0)
    assert stable <= log.log_end_offset


def test_a_batch_that_was_truncated_away_may_come_again(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    for number in range(4):
        committed(log, _sent(number))
    log.truncate_to(4)
    assert log.append(_sent(2), 0) == (4, 5, -1, False)
    log = reopened(log)
    assert log.append(_sent(2), 0) == (4, 5, -1, True)


def test_a_log_that_starts_anew_knows_no_producer(tmp_path: Path) -> None:
    log = _with_three_producers(tmp_path)
    log.truncate_fully_and_start_at(100)
    for clean in (True, False):
        assert _views(log) == []
        assert log.last_stable_offset == 100
        log = reopened(log, clean=clean)
    assert not log.append(_sent(5), 0).duplicate  # of whom nothing is known may begin anywhere


def test_what_is_known_of_producers_outlives_their_records(tmp_path: Path) -> None:
    """A repeat whose first copy has expired is still a repeat."""
    log = _with_three_producers(tmp_path)
    before = _views(log)
    log.move_start(20)
    assert log.detach_deleted()
    for clean in (True, False):
        log = reopened(log, clean=clean)
        assert _views(log) == before
    assert log.append(_sent(7), 0).duplicate
