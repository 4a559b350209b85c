"""Crashes that once took something, each as small as it gets. The random ones are in test_crashes.py."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from pylog.storage.compaction import CleaningPlan, CleaningResult
from pylog.storage.kernels.cleaner import clean
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from tests.support.clock import SettableClock
from tests.support.logs import base_offsets, batch_of, committed, offsets_in
from tests.support.simulated_files import Crashed, SimulatedFiles

pytestmark = pytest.mark.faults

DATA = Path("/sim/data")
ID, OTHER_ID = UUID(int=1), UUID(int=2)
BATCH_BYTES = len(batch_of(2))
CONFIG = LogConfig(segment_bytes=2 * BATCH_BYTES, index_interval_bytes=1)
MACHINE_CRASHES = 12


class Cleaner:
    def __init__(self, plan: CleaningPlan, files: SimulatedFiles) -> None:
        self._plan = plan
        self._files = files

    def wait(self) -> CleaningResult:
        return clean(self._plan, self._files)

    def stop(self) -> None: ...


class World:
    """One partition, `t-0`, with two batches of two records in a segment."""

    def __init__(self, files: SimulatedFiles | None = None, config: LogConfig = CONFIG) -> None:
        self.files = files or SimulatedFiles()
        self.config = config
        self.manager = LogManager(
            [DATA],
            config,
            files=self.files,
            clock=SettableClock(),
            start_cleaner=lambda plan: Cleaner(plan, self.files),
        )
        self.log = self.open()

    def open(self, topic_id: UUID = ID) -> PartitionLog:
        self.log = self.manager.open("t", 0, topic_id, self.config)
        return self.log

    def append(self, batches: int = 1, *, epoch: int = 0, producer_id: int = -1) -> None:
        for _ in range(batches):
            view = self.log.producers.view(producer_id)
            sequence = None if view is None else view.last_sequence + 1
            committed(self.log, batch_of(2, producer_id=producer_id, sequence=sequence), epoch)

    def after_machine_crashes(self) -> "Iterator[World]":
        for seed in (None, *range(MACHINE_CRASHES)):
            yield World(self.files.after_machine_crash(seed), self.config)

    def at_every_crash(self, work: Callable[[], object]) -> "Iterator[World]":
        """What each kind of crash leaves, before every operation of `work` and behind it."""
        forks: list[SimulatedFiles] = []

        def fork() -> None:
            forks.append(self.files.after_process_crash())
            forks.extend(self.files.after_machine_crash(seed) for seed in (None, *range(MACHINE_CRASHES)))

        self.files.before_operation = fork
        work()
        self.files.before_operation = None
        fork()
        for files in forks:
            yield World(files, self.config)

    @property
    def epochs(self) -> list[tuple[int, int]]:
        return [tuple(entry) for entry in self.log.epochs.entries]


# -- where the log begins


def test_a_new_log_begins_at_its_beginning_though_it_was_never_flushed() -> None:
    world = World()
    world.append(7)
    for found in world.after_machine_crashes():
        assert found.log.log_start_offset == 0


def test_a_log_whose_creation_was_interrupted_begins_at_its_beginning() -> None:
    for operation in range(1, 40):
        files = SimulatedFiles()
        files.crash_at = operation
        try:
            World(files)
        except Crashed:
            world = World(files.after_process_crash())
            world.append(7)
            for found in world.after_machine_crashes():
                assert found.log.log_start_offset == 0
        else:
            assert operation > 10
            return
    raise AssertionError("it never came to an end")


def test_deleted_records_leave_a_log_that_begins_where_they_end() -> None:
    world = World()
    world.append(7)
    crashes = world.at_every_crash(lambda: world.manager.delete_records("t", 0, 5))
    starts = {found.log.log_start_offset for found in crashes}
    assert starts == {0, 5}
    world.append(7)
    assert {found.log.log_start_offset for found in world.after_machine_crashes()} == {5}


@pytest.mark.parametrize("offset", [1, 3, 4, 6])
def test_deleted_records_do_not_come_back_with_a_truncation_below_the_start(offset: int) -> None:
    world = World()
    world.append(5)
    world.manager.delete_records("t", 0, 7)
    for found in world.at_every_crash(lambda: world.manager.truncate_to("t", 0, offset)):
        start = found.log.log_start_offset
        assert start == 7 or start == found.log.log_end_offset <= offset


def test_a_log_that_is_emptied_twice_begins_at_neither_older_place() -> None:
    world = World()
    world.append(5)
    world.manager.delete_records("t", 0, 2)
    world.log.truncate_fully_and_start_at(14)  # the process stops before this start is in the checkpoint
    world = World(world.files.after_process_crash())
    assert world.log.log_start_offset == 14
    for found in world.at_every_crash(lambda: world.manager.truncate_fully_and_start_at("t", 0, 13)):
        assert found.log.log_start_offset in (13, 14)


# -- where it ends


@pytest.mark.parametrize("offset", [5, 7], ids=["within a segment", "at its first batch"])
def test_what_follows_a_truncation_within_a_batch_is_not_taken_for_flushed(offset: int) -> None:
    world = World()
    world.append(5)
    world.log.flush()
    world.manager.checkpoint()
    world.manager.truncate_to("t", 0, offset)
    world.append(3)
    for found in world.after_machine_crashes():  # which would find damage below the recovery point
        assert found.log.log_end_offset in range(offset - 1, offset + 6, 2)
        assert found.log.log_end_offset == len(offsets_in(found.log))


@pytest.mark.parametrize("start", [0, 1, 3])
def test_a_truncation_that_is_cut_short_below_the_start_is_no_damage(start: int) -> None:
    world = World()
    committed(world.log, batch_of(5))
    world.append(2)
    world.log.flush()
    world.manager.checkpoint()
    world.manager.delete_records("t", 0, start)
    for found in world.at_every_crash(lambda: world.manager.truncate_to("t", 0, 2)):
        assert found.log.log_end_offset in (0, start, 5, 7, 9)


def test_an_emptied_log_does_not_grow_into_segments_that_wait_to_be_buried() -> None:
    world = World()
    world.append(6)  # segments at 0, 4, 8
    world.log.move_start(10)
    world.manager.store_starts()
    doomed = world.manager.detach([("t", 0)])
    assert [entry.base_offsets for entry in doomed] == [[0, 4]]
    world.manager.truncate_fully_and_start_at("t", 0, 2)
    world.append()  # ends at 4, where an old one begins
    assert [found.log.log_end_offset for found in (World(world.files.after_process_crash()),)] == [4]
    world.manager.bury(doomed)
    assert offsets_in(World(world.files.after_process_crash()).log) == [2, 3]


def test_segments_of_a_deleted_topic_are_not_buried_in_the_next_one_of_its_name() -> None:
    world = World()
    world.append(6)
    world.log.move_start(8)
    world.manager.store_starts()
    doomed = world.manager.detach([("t", 0)])
    world.manager.delete("t", 0)
    world.open(OTHER_ID)
    world.append()
    world.manager.bury(doomed)
    assert base_offsets(world.log) == [0]
    world.append()
    assert offsets_in(world.log) == [0, 1, 2, 3]


# -- what follows from the batches


def test_nothing_of_a_dropped_history_outlives_it() -> None:
    world = World()
    world.append(5, epoch=3, producer_id=7)
    for found in world.at_every_crash(lambda: world.manager.truncate_fully_and_start_at("t", 0, 20)):
        if found.log.log_end_offset == 20:
            assert found.log.producers.views() == []
            assert found.epochs == []


def test_a_producer_whose_newest_batches_are_lost_behind_the_start_may_go_on() -> None:
    world = World()
    world.append(1, producer_id=7)
    world.log.flush()
    world.append(2, producer_id=7)
    for found in world.at_every_crash(lambda: world.manager.delete_records("t", 0, 6)):
        end = found.log.log_end_offset
        assert end >= found.log.log_start_offset
        assert committed(found.log, batch_of(2, producer_id=7, sequence=end)) == end


def test_a_snapshot_from_before_the_first_batch_is_not_used() -> None:
    world = World()
    world.append(1, producer_id=8)
    world.append(1, producer_id=7)
    world.append(1, producer_id=8)  # in the second segment, and nowhere behind
    world.append(3, producer_id=7)
    world.log.flush()
    older, newer = (world.log.directory / f"{offset:020d}.snapshot" for offset in (4, 8))
    snapshot = world.files.read(older)
    assert snapshot is not None
    world.manager.delete_records("t", 0, 9)
    world.files.replace(newer, b"damaged", durable=True)
    world.files.replace(older, snapshot, durable=True)  # a crash may have kept it
    found = World(world.files.after_process_crash())
    assert [view.producer_id for view in found.log.producers.views()] == [7]
    assert committed(found.log, batch_of(2, producer_id=8, sequence=4)) == 12


def test_the_epochs_lie_within_the_log() -> None:
    world = World()
    world.append(2, epoch=1)
    world.log.flush()
    world.append(2, epoch=2)
    for found in world.after_machine_crashes():
        assert found.epochs == ([(1, 0)] if found.log.log_end_offset == 4 else [(1, 0), (2, 4)])
    world.manager.delete_records("t", 0, 5)
    for found in world.after_machine_crashes():
        if found.log.log_end_offset > 5:
            assert found.epochs == [(2, 5)]


def test_records_that_are_not_deleted_after_all_keep_their_epoch() -> None:
    world = World()
    world.append(3, epoch=1)
    world.log.move_start(4)
    world.append(1, epoch=2)  # stores the epochs, while the start is in memory only
    assert World(world.files.after_process_crash()).epochs == [(1, 0), (2, 6)]


def test_a_file_of_epochs_that_a_crash_emptied_is_made_anew() -> None:
    world = World()
    world.append(5, epoch=1)
    world.log.flush()
    world.manager.checkpoint()
    world.append(1, epoch=2)
    for found in world.after_machine_crashes():
        assert found.epochs[0] == (1, 0)


def test_an_epoch_that_would_begin_within_a_batch_is_of_something_that_was_lost() -> None:
    world = World()
    committed(world.log, batch_of(4), 0)
    committed(world.log, batch_of(3), 0)
    world.files.replace(world.log.directory / "leader-epoch-checkpoint", b"0\n2\n0 0\n1 2\n", durable=True)
    assert World(world.files.after_process_crash()).epochs == [(0, 0)]


# -- indexes


def test_a_segment_that_was_flushed_whole_and_then_sealed_has_its_indexes_all_the_same() -> None:
    world = World()
    world.append(2)
    world.log.flush()
    world.manager.checkpoint()
    world.append(1)  # seals the first segment: its indexes are stored, and not synced
    for found in world.after_machine_crashes():
        segment = found.log._segments[0]
        assert [segment.offsets[number] for number in range(segment.offsets.count)] == [(3, BATCH_BYTES)]
        assert [segment.times[number] for number in range(segment.times.count)][-1][1] == 1


# -- compaction


def test_a_flush_between_the_swap_of_files_and_that_of_segments_misses_nothing() -> None:
    world = World(config=LogConfig(compact=True, delete=False, dirty_ratio_min=0.0))
    for _ in range(4):
        world.append()
        world.log.roll()
    job = world.manager.next_compaction()
    assert job is not None
    job.clean()
    assert job.begin()
    job.put_in_place()
    world.log.flush()
    job.finish()
    assert world.log.failure is None
    assert world.log.recovery_point == 8
