"""High watermark and last stable offset, and which transactions a reader of committed records has to drop."""

import os
from pathlib import Path

import pytest

from pylog.storage.batch import walk
from pylog.storage.errors import InvalidTransactionState, TransactionCoordinatorFenced
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import decode_batch
from pylog.storage.recovery import Trust
from pylog.storage.transactions import AbortedTransaction
from tests.support.logs import batch_of, bytes_of, committed, log_in, marker_of, reopened
from tests.support.simulated_files import SimulatedFiles

DATA = Path("/sim/data")
BATCH_BYTES = len(batch_of(1, producer_id=7))


class Writer:
    """A transactional producer that keeps its sequence."""

    def __init__(self, log: PartitionLog, producer_id: int) -> None:
        self.log = log
        self.producer_id = producer_id
        self.sequence = 0

    def write(self, count: int = 1) -> None:
        batch = batch_of(count, producer_id=self.producer_id, sequence=self.sequence, transactional=True)
        self.log.append(batch, 0)
        self.sequence += count

    def end(self, *, commit: bool) -> None:
        self.log.append(marker_of(self.producer_id, commit=commit), 0)


def _bounds(log: PartitionLog) -> tuple[int, int, int]:
    return log.last_stable_offset, log.high_watermark, log.log_end_offset


# -- the bounds


def test_an_append_is_committed_when_the_high_watermark_has_passed_it(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(3), 0)
    assert _bounds(log) == (0, 0, 3)
    log.advance_high_watermark(2)
    assert _bounds(log) == (2, 2, 3)
    log.advance_high_watermark(1)  # it never goes back by itself
    assert _bounds(log) == (2, 2, 3)
    log.advance_high_watermark(100)  # nor behind the end
    assert _bounds(log) == (3, 3, 3)
    log.append(batch_of(1), 0)
    assert _bounds(log) == (3, 3, 4)


def test_all_of_a_log_that_is_opened_is_committed(tmp_path: Path) -> None:
    """There is one replica; whoever knows of more says so."""
    log = log_in(tmp_path)
    log.append(batch_of(3), 0)
    assert _bounds(reopened(log)) == (3, 3, 3)


def test_the_last_stable_offset_waits_for_the_first_open_transaction(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    committed(log, batch_of(2))
    first, second = Writer(log, 7), Writer(log, 8)
    steps = [
        (lambda: first.write(2), 2),
        (lambda: second.write(1), 2),
        (lambda: log.append(batch_of(5), 0), 2),
        (lambda: second.end(commit=True), 2),
        (lambda: first.end(commit=False), 12),
        (lambda: second.write(), 12),
        (lambda: first.write(), 12),
        (lambda: second.end(commit=True), 13),
        (lambda: first.end(commit=True), 16),
    ]
    for step, stable in steps:
        step()
        log.advance_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == stable
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset


def test_a_transaction_is_stable_when_its_marker_is_committed_and_not_before(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    writer = Writer(log, 7)
    writer.write(2)
    writer.end(commit=True)
    stable = []
    for high_watermark in range(4):
        log.advance_high_watermark(high_watermark)
        stable.append(log.last_stable_offset)
    assert stable == [0, 0, 0, 3]


def test_the_last_stable_offset_is_not_below_the_start_of_the_log(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    Writer(log, 7).write(4)
    committed(log, batch_of(3))
    log.move_start(5)
    assert _bounds(log) == (5, 7, 7)


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_is_open_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=3 * BATCH_BYTES))
    for producer_id in (7, 8):
        writer = Writer(log, producer_id)
        writer.write()
        committed(log, batch_of(2))
    log = reopened(log, clean=clean)
    assert log.last_stable_offset == 0
    committed(log, marker_of(7, commit=True))
    assert log.last_stable_offset == 3
    log = reopened(log, clean=clean)
    assert log.last_stable_offset == 3
    committed(log, marker_of(8, commit=True))
    assert log.last_stable_offset == log.log_end_offset
    assert reopened(log, clean=clean).last_stable_offset == log.log_end_offset


def test_a_truncation_opens_a_transaction_again(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    writer = Writer(log, 7)
    writer.write(2)
    committed(log, marker_of(7, commit=False))
    committed(log, batch_of(1))
    assert log.last_stable_offset == 4
    log.truncate_to(2)
    assert _bounds(log) == (0, 2, 2)
    assert log.aborted_transactions(0, 2) == []
    committed(log, marker_of(7, commit=True))
    assert log.last_stable_offset == 3


def test_a_marker_of_a_replaced_coordinator_is_refused(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    for coordinator_epoch in (4, 5):
        log.append(marker_of(7, commit=True, coordinator_epoch=coordinator_epoch), 0)
    with pytest.raises(TransactionCoordinatorFenced):
        log.append(marker_of(7, commit=True, coordinator_epoch=4), 0)
    with pytest.raises(TransactionCoordinatorFenced):
        reopened(log).append(marker_of(7, commit=True, coordinator_epoch=4), 0)


def test_a_batch_that_is_not_part_of_the_open_transaction_is_refused(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    Writer(log, 7).write()
    for _ in range(2):
        log = reopened(log)
        with pytest.raises(InvalidTransactionState):
            log.append(batch_of(1, producer_id=7, sequence=1), 0)


# -- the aborted


def _story(log: PartitionLog) -> list[tuple[int, int, int]]:
    """(producer, first offset, marker) of the transactions that were aborted, some of them across segments."""
    writers = {producer_id: Writer(log, producer_id) for producer_id in (7, 8, 9)}
    started: dict[int, int] = {}
    aborted = []
    for number, (producer_id, outcome) in enumerate(
        [
            (7, None),
            (8, None),
            (7, None),
            (8, False),
            (9, None),
            (7, True),
            (7, None),
            (9, False),
            (9, None),
            (7, False),
        ]
        * 3
    ):
        if outcome is None:
            started.setdefault(producer_id, log.log_end_offset)
            writers[producer_id].write(1 + number % 2)
        else:
            if not outcome:
                aborted.append((producer_id, started[producer_id], log.log_end_offset))
            del started[producer_id]
            writers[producer_id].end(commit=outcome)
        if number % 4 == 0:
            log.append(batch_of(1), 0)
        log.advance_high_watermark(log.log_end_offset)
    return aborted


def _committed_values(log: PartitionLog, start: int) -> list[int]:
    """The offsets that a reader of committed records keeps: as clients do it, with the list that goes with a fetch."""
    kept: list[int] = []
    while (part := log.read(start, 1 << 20, log.last_stable_offset)) is not None:
        data = bytes_of(part)
        batches = list(walk(data))
        waiting = sorted(log.aborted_transactions(start, batches[-1][1].next_offset), key=lambda entry: entry[1])
        dropping: set[int] = set()
        for position, header in batches:
            while waiting and waiting[0].first_offset <= header.last_offset:
                dropping.add(waiting.pop(0).producer_id)
            if header.is_control:
                dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                kept += [record.offset for record in decode_batch(data, position) if record.offset >= start]
            start = header.next_offset
    return kept


@pytest.mark.parametrize("segment_bytes", [1 << 20, 6 * BATCH_BYTES, 3 * BATCH_BYTES])
@pytest.mark.parametrize("clean", [None, True, False], ids=["live", "closed", "killed"])
def test_the_aborted_transactions_of_any_range_are_those_that_touch_it(
    tmp_path: Path, segment_bytes: int, clean: bool | None
) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=segment_bytes))
    aborted = _story(log)
    if clean is not None:
        log = reopened(log, clean=clean)
    for start in range(log.log_end_offset):
        for end in range(start + 1, log.log_end_offset + 1):
            found = {entry[:3] for entry in log.aborted_transactions(start, end)}
            touching = {entry for entry in aborted if entry[2] >= start and entry[1] < end}
            assert found == touching


def test_a_reader_of_committed_records_sees_them_and_no_others(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=6 * BATCH_BYTES))
    aborted = _story(log)
    log = reopened(log)
    expected = []
    offset = 0
    while (part := log.read(offset, 1, log.last_stable_offset)) is not None:
        data = bytes_of(part)
        for position, header in walk(data):
            dropped = any(
                producer == header.producer_id and first <= header.base_offset < marker
                for producer, first, marker in aborted
            )
            if not header.is_control and not dropped:
                expected += [record.offset for record in decode_batch(data, position)]
            offset = header.next_offset
    for start in range(log.last_stable_offset):
        assert _committed_values(log, start) == [offset for offset in expected if offset >= start]


def test_the_index_of_a_segment_is_what_recovery_makes_of_it(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=6 * BATCH_BYTES))
    _story(log)
    log.close()
    before = {path.name: path.read_bytes() for path in log.directory.glob("*.txnindex")}
    assert len(before) > 2
    for path in log.directory.glob("*.txnindex"):
        path.write_bytes(b"something else")
    log = reopened(log)
    assert {path.name: path.read_bytes() for path in log.directory.glob("*.txnindex")} == before


def test_an_index_of_a_trusted_segment_that_cannot_be_is_made_anew(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=6 * BATCH_BYTES))
    aborted = _story(log)
    log.close()
    before = {path.name: path.read_bytes() for path in log.directory.glob("*.txnindex")}
    for path in log.directory.glob("*.txnindex"):
        data = bytearray(path.read_bytes())
        data[18] ^= 0x40  # the marker of the first entry is far away now
        path.write_bytes(data)
    log = reopened(log, clean=True)
    assert {path.name: path.read_bytes() for path in log.directory.glob("*.txnindex")} == before
    assert [entry[:3] for entry in log.aborted_transactions(0, 1000)] == aborted


def test_a_stop_while_an_index_is_made_anew_forgets_no_transaction() -> None:
    """Of a segment below the recovery point, a missing index says that nothing was aborted in it."""
    files = SimulatedFiles()
    log = log_in(DATA, LogConfig(segment_bytes=6 * BATCH_BYTES), files=files)
    aborted = _story(log)
    log.close()
    files.sync_all()
    for name in files.sizes_in(log.directory):
        if name.endswith(".txnindex"):
            files.flip_bit(log.directory / name, 18 * 8 + 1)
    stops: list[SimulatedFiles] = []
    files.before_operation = lambda: stops.extend([files.after_process_crash(), files.after_machine_crash(None)])
    log = reopened(log, clean=True)
    files.before_operation = None
    stops += [files.after_process_crash(), files.after_machine_crash(None)]
    assert len(stops) > 20
    trust = Trust(clean=False, recovery_point=log.log_end_offset)
    for stopped in stops:
        found = PartitionLog(log.directory, log.config, trust, files=stopped)
        assert [entry[:3] for entry in found.aborted_transactions(0, 1000)] == aborted


def test_only_the_index_behind_the_recovery_point_is_made_anew(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=6 * BATCH_BYTES))
    _story(log)
    names = sorted(path.name for path in log.directory.glob("*.txnindex"))
    point = int(names[2].removesuffix(".txnindex"))
    log.flush()
    kept = {name: os.stat(log.directory / name).st_ino for name in names[:2]}
    log = reopened(log, Trust(clean=False, recovery_point=point + 1))  # at its end, the second would be read again
    assert {name: os.stat(log.directory / name).st_ino for name in names[:2]} == kept


def test_a_truncation_forgets_the_transactions_that_ended_behind_it(tmp_path: Path) -> None:
    for to in range(2, 40, 3):
        log = log_in(tmp_path / str(to), LogConfig(segment_bytes=6 * BATCH_BYTES))
        aborted = _story(log)
        log.truncate_to(to)
        end = log.log_end_offset
        expected = [entry for entry in aborted if entry[2] < end]
        assert [entry[:3] for entry in log.aborted_transactions(0, 1000)] == expected
        log = reopened(log)
        assert [entry[:3] for entry in log.aborted_transactions(0, 1000)] == expected


def test_an_entry_says_how_far_all_was_stable_when_it_was_made(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    first, second = Writer(log, 7), Writer(log, 8)
    first.write()  # 0
    second.write()  # 1
    second.end(commit=False)  # 2
    first.end(commit=False)  # 3
    assert log.aborted_transactions(0, 4) == [AbortedTransaction(8, 1, 2, 0), AbortedTransaction(7, 0, 3, 4)]
