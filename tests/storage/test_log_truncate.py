"""Truncation: records from an offset on are gone when it returns, and stay gone; what follows from them goes too."""

import pytest

from pylog.storage.errors import LogBusy
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.recovery import UNCLEAN, Trust
from tests.support.clock import SettableClock
from tests.support.logs import (
    START_MS,
    base_offsets,
    batch_of,
    committed,
    log_in,
    offsets_in,
    records_in,
    reopened,
)
from tests.support.simulated_files import SimulatedFiles

BATCH_BYTES = len(batch_of(2))
CONFIG = LogConfig(segment_bytes=4 * BATCH_BYTES, index_interval_bytes=BATCH_BYTES)


def _filled(files: SimulatedFiles, appends: int = 10, name: str = "log") -> PartitionLog:
    """Batches of two, four a segment; times go up and down."""
    log = log_in(files.root / name, CONFIG, files=files)
    for number in range(appends):
        committed(log, batch_of(2, timestamp_ms=START_MS + number * 7 % 31), number // 4)
    return log


def _answers(log: PartitionLog) -> list[object]:
    """Everything that can be asked of a log."""
    times = [log.offset_at_time(START_MS + late) for late in range(-1, 35)]
    parts = [log.read(offset, 100) for offset in range(log.log_start_offset, log.log_end_offset)]
    slices = [(part.file.path.name, part.position, part.length) for part in parts if part]
    bounds = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset, log.size_bytes)
    views = [view[:3] for view in log.segments()]
    return [bounds, times, slices, views, records_in(log), log.offset_of_max_timestamp(), log.epochs.entries]


@pytest.mark.parametrize("again", [None, True, False], ids=["live", "closed before", "killed before"])
@pytest.mark.parametrize("to", range(1, 21))
def test_a_truncated_log_answers_like_one_that_never_had_more(to: int, again: bool | None) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    if again is not None:
        log = reopened(log, clean=again)
    log.truncate_to(to)
    twin = _filled(files, to // 2, "twin")
    if to in (8, 9, 16, 17):  # a segment that begins there stays, empty
        twin.roll()
    assert _answers(log) == _answers(twin)
    for one in (log, twin):
        for number in range(3):
            committed(one, batch_of(1, timestamp_ms=START_MS + number), 9)
    assert _answers(log) == _answers(twin)
    for clean in (True, False):
        log, twin = reopened(log, clean=clean), reopened(twin, clean=clean)
        assert _answers(log) == _answers(twin)
    names = {name: data for name, data in files.tree().items() if "snapshot" not in name}
    ours = {name.removeprefix("log/"): data for name, data in names.items() if name.startswith("log/")}
    theirs = {name.removeprefix("twin/"): data for name, data in names.items() if name.startswith("twin/")}
    if again is None:  # a close puts the latest time of the moment into the time index
        assert ours == theirs
    else:
        assert ours.keys() == theirs.keys()


@pytest.mark.parametrize("to", [20, 21, 1000])
def test_a_truncation_at_or_behind_the_end_changes_nothing(to: int) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    before = files.operations
    log.truncate_to(to)
    assert files.operations == before


@pytest.mark.parametrize("to", [1, 4, 8, 9, 15])
def test_what_was_truncated_does_not_come_back_after_a_crash_of_the_machine(to: int) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.flush()
    files.sync_all()
    log.truncate_to(to)
    crashed = files.after_machine_crash(None)
    again = PartitionLog(log.directory, log.config, Trust(clean=False, recovery_point=0), files=crashed)
    assert offsets_in(again) == list(range(to // 2 * 2))


def test_a_crash_at_any_step_leaves_the_old_log_or_a_shorter_one() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.flush()
    files.sync_all()
    ends = []

    def look() -> None:
        for crashed in (files.after_process_crash(), *(files.after_machine_crash(seed) for seed in (None, 1, 2))):
            again = PartitionLog(log.directory, log.config, Trust(clean=False), files=crashed)
            offsets = offsets_in(again)
            assert offsets == list(range(len(offsets)))
            assert len(offsets) >= 4
            ends.append(len(offsets))

    files.before_operation = look
    log.truncate_to(5)
    assert {20, 16, 8, 4} == set(ends)


def test_the_recovery_point_and_the_high_watermark_follow_the_end() -> None:
    log = _filled(SimulatedFiles())
    log.flush()
    assert log.recovery_point == 20
    log.truncate_to(11)
    assert (log.recovery_point, log.high_watermark, log.log_end_offset) == (10, 10, 10)
    committed(log, batch_of(1))
    assert log.recovery_point == 10


def test_a_truncation_below_the_start_of_the_log_takes_the_start_along() -> None:
    log = _filled(SimulatedFiles())
    log.move_start(7)
    log.truncate_to(5)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 4, 4)
    assert committed(log, batch_of(1)) == 4


def test_segments_that_were_truncated_leave_no_files() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.truncate_to(9)
    assert base_offsets(log) == [0, 8]  # where one begins with the end it stays, empty
    log.truncate_to(7)
    assert base_offsets(log) == [0]
    assert [name for name in files.tree() if "deleted" in name or f"{8:020d}" in name or f"{16:020d}" in name] == []
    assert committed(log, batch_of(1)) == 6


def test_a_segment_that_takes_appends_again_is_as_young_as_the_truncation() -> None:
    clock = SettableClock()
    files = SimulatedFiles(clock)
    log = log_in(files.root, LogConfig(segment_ms=1000), files=files, clock=clock)
    for _ in range(3):
        committed(log, batch_of(1, timestamp_ms=-1))
    log.roll()
    clock.advance(5000)
    log.truncate_to(2)
    clock.advance(1000)
    committed(log, batch_of(1, timestamp_ms=-1))
    assert base_offsets(log) == [0]


# -- anew


@pytest.mark.parametrize("start", [0, 3, 8, 20, 10**6])
def test_a_log_can_be_emptied_and_begin_anywhere(start: int) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.truncate_fully_and_start_at(start)
    for clean in (True, False):
        bounds = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
        assert bounds == (start, start, start, start)
        assert (log.size_bytes, log.epochs.entries, log.offset_at_time(0)) == (0, (), None)
        assert base_offsets(log) == [start]
        log = reopened(log, clean=clean)
    assert committed(log, batch_of(2), 7) == start
    log = reopened(log)
    assert offsets_in(log) == [start, start + 1]
    assert [tuple(entry) for entry in log.epochs.entries] == [(7, start)]


def test_a_truncation_to_the_first_offset_empties_the_log() -> None:
    log = _filled(SimulatedFiles())
    log.move_start(9)
    log.detach_deleted()
    log.truncate_to(8)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (8, 8, 0)


def test_a_log_that_began_anew_is_not_due_for_a_flush() -> None:
    files = SimulatedFiles()
    log = log_in(files.root, LogConfig(flush_messages=10), files=files)
    log.truncate_fully_and_start_at(1000)
    log.append(batch_of(9), 0)
    assert not log.flush_is_due
    log.append(batch_of(1), 0)
    assert log.flush_is_due


def test_a_crash_while_a_log_begins_anew_leaves_the_old_one_a_shorter_one_or_an_empty_one() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.flush()
    files.sync_all()

    def look() -> None:
        for crashed in (files.after_process_crash(), *(files.after_machine_crash(seed) for seed in (None, 1, 2))):
            again = PartitionLog(log.directory, log.config, UNCLEAN, files=crashed)
            offsets = offsets_in(again)
            assert offsets == list(range(len(offsets)))
            assert offsets or again.log_end_offset in (0, 100)
            if not offsets:
                assert again.epochs.entries == ()
                assert len(again.producers) == 0

    files.before_operation = look
    log.truncate_fully_and_start_at(100)
    look()


def test_a_log_whose_segments_are_being_replaced_is_not_truncated() -> None:
    log = _filled(SimulatedFiles())
    assert log.begin_swap(log.shape, [0])
    for truncate in (lambda: log.truncate_to(3), lambda: log.truncate_fully_and_start_at(0)):
        with pytest.raises(LogBusy):
            truncate()
    assert offsets_in(log) == list(range(20))
