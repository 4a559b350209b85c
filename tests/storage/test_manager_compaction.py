"""Compaction through the manager: no log keeps the others from theirs, and what fails is taken back where it can be."""

import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from pylog.storage.compaction import CleaningPlan, CleaningResult
from pylog.storage.compaction_job import CompactionJob
from pylog.storage.errors import CleanerFailed, DamagedSegment, DedupeBufferTooSmall, StorageError
from pylog.storage.kernels.cleaner import clean
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import COMPACTION_RETRY_MS, LogManager
from pylog.storage.records import Record, encode_batch
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, committed, offsets_in
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.faults

DATA = Path("/sim/data")
ID, OTHER_ID = UUID(int=1), UUID(int=2)
CONFIG = LogConfig(compact=True, delete=False, segment_bytes=300, index_interval_bytes=1, dirty_ratio_min=0.0)
LAG_BOUNDED = LogConfig(
    compact=True, delete=False, segment_bytes=300, index_interval_bytes=1, compaction_lag_ms_max=1 << 40
)


class Cleaner:
    def __init__(self, plan: CleaningPlan, files: SimulatedFiles, fails: Callable[[CleaningPlan], None]) -> None:
        self._plan = plan
        self._files = files
        self._fails = fails

    def wait(self) -> CleaningResult:
        self._fails(self._plan)
        return clean(self._plan, self._files)

    def stop(self) -> None: ...


class World:
    def __init__(self, config: LogConfig = CONFIG, open_files_max: int = 1000) -> None:
        self.clock = SettableClock(START_MS)
        self.files = SimulatedFiles(self.clock)
        self.config = config
        self.open_files_max = open_files_max
        self.fails: Callable[[CleaningPlan], None] = lambda plan: None
        self.manager = self.managed()

    def managed(self) -> LogManager:
        return LogManager(
            [DATA],
            self.config,
            files=self.files,
            clock=self.clock,
            open_files_max=self.open_files_max,
            start_cleaner=lambda plan: Cleaner(plan, self.files, self.fails),
            dedupe_buffer_bytes=1 << 16,
        )

    def filled(self, topic: str, appends: int = 20, topic_id: UUID = ID) -> PartitionLog:
        log = self.manager.open(topic, 0, topic_id)
        for number in range(appends):
            committed(log, encode_batch([Record(0, START_MS + number, b"key %d" % (number % 3), b"value")]))
        log.flush()
        return log

    def begun(self) -> CompactionJob:
        """The cleaner's part is done, and the log ready to take it."""
        job = self.manager.next_compaction()
        assert job is not None
        job.clean()
        assert job.begin()
        return job

    def dirtiest(self) -> str | None:
        job = self.manager.next_compaction()
        return None if job is None else job.log.directory.name

    def names(self, topic: str, *suffixes: str) -> list[str]:
        return [name for name in self.files.sizes_in(DATA / f"{topic}-0") if name.endswith(suffixes)]


# -- no log keeps the others from being compacted


def test_a_log_whose_first_batch_is_damaged_is_left_out() -> None:
    world = World(LAG_BOUNDED)
    for topic in ("a", "b"):
        world.filled(topic)
    world.manager.close()
    world.manager = world.managed()
    for topic in ("a", "b"):
        world.manager.open(topic, 0, ID)
    world.files.write_at(DATA / "a-0" / f"{0:020d}.log", 8, b"\xff\xff\xff\xff")
    assert world.dirtiest() == "b-0"
    assert list(world.manager.uncleanable) == [("a", 0)]


def test_a_log_whose_index_of_aborted_transactions_is_damaged_is_left_out() -> None:
    world = World()
    world.filled("a", 30)
    world.filled("b")
    world.files.write_at(DATA / "a-0" / f"{0:020d}.txnindex", 0, b"x" * 10)
    assert world.dirtiest() == "b-0"
    assert list(world.manager.uncleanable) == [("a", 0)]


def test_a_disk_that_cannot_be_read_takes_its_log_offline_and_leaves_the_others() -> None:
    world = World(LAG_BOUNDED)
    for topic in ("a", "b"):
        world.filled(topic)
    world.manager.close()
    world.manager = world.managed()
    a, _ = [world.manager.open(topic, 0, ID) for topic in ("a", "b")]
    a.segments()
    world.files.fail("read_*", errno.EIO, path="*/a-0/*.log", times=None)
    assert world.dirtiest() == "b-0"
    assert a.failure is not None


@pytest.mark.parametrize(
    "error", [CleanerFailed("killed"), OSError(errno.ENOSPC, "No space left")], ids=["died", "full"]
)
def test_a_log_whose_cleaner_fails_waits_until_the_others_had_their_turn(error: Exception) -> None:
    world = World()
    world.filled("a", 30)
    world.filled("b")

    def fails(plan: CleaningPlan) -> None:
        if plan.directory.name == "a-0":
            raise error

    world.fails = fails
    job = world.manager.next_compaction()
    assert job is not None
    assert job.log.directory.name == "a-0"
    with pytest.raises(type(error)):
        job.clean()
    assert world.dirtiest() == "b-0"
    assert world.manager.uncleanable == {}
    world.clock.advance(COMPACTION_RETRY_MS)
    assert world.dirtiest() == "a-0"


def test_a_log_whose_keys_need_more_memory_is_compacted_when_there_is_more() -> None:
    world = World()
    for topic, appends in (("a", 40), ("b", 30)):
        world.filled(topic, appends)

    def fails(plan: CleaningPlan) -> None:
        if plan.directory.name == "a-0":
            raise DedupeBufferTooSmall("too small")
        raise DamagedSegment(plan.directory, 0, "damaged")

    world.fails = fails
    for _ in range(2):
        job = world.manager.next_compaction()
        assert job is not None
        with pytest.raises(StorageError):
            job.clean()
    for memory_bytes, given_up in ((1 << 16, ["a", "b"]), (1 << 15, ["a", "b"]), (1 << 17, ["b"])):
        world.manager.dedupe_buffer_bytes = memory_bytes
        assert sorted(topic for topic, _ in world.manager.uncleanable) == given_up
    assert world.dirtiest() == "a-0"


# -- logs that come and go meanwhile


def test_a_topic_that_was_made_again_does_not_suffer_for_the_one_before() -> None:
    world = World()
    world.filled("a")
    job = world.manager.next_compaction()
    assert job is not None
    world.manager.delete("a", 0)
    world.filled("a", topic_id=OTHER_ID)
    world.files.truncate(DATA / "a-0" / f"{0:020d}.log", 10)
    with pytest.raises(StorageError):
        job.clean()
    assert world.manager.uncleanable == {}
    assert world.dirtiest() == "a-0"


def test_a_log_that_is_deleted_while_it_is_looked_at_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk thread deletes; the owner has seen the log already."""
    world = World()
    logs = [world.filled("a"), world.filled("b")]
    look = PartitionLog.segments

    def segments(log: PartitionLog) -> object:
        found = look(log)
        world.manager.delete("a", 0)
        return found

    monkeypatch.setattr(PartitionLog, "segments", segments)
    assert world.dirtiest() == "b-0"
    assert world.manager.uncleanable == {}
    logs[1].move_start(5)
    world.manager.store_starts()
    assert [doomed.log for doomed in world.manager.detach([("a", 0), ("b", 0)])] == [logs[1]]


# -- putting in place


@pytest.mark.parametrize(
    ("operation", "error", "path"),
    [
        pytest.param("create_empty", errno.ENOSPC, "*.txnindex.swap", id="full"),
        pytest.param("rename", errno.ENOSPC, "*.index.cleaned", id="full directory"),
        pytest.param("sync", errno.EMFILE, "*/a-0", id="no descriptor"),
    ],
)
def test_what_cannot_be_put_in_place_just_now_is_taken_back(operation: str, error: int, path: str) -> None:
    world = World()
    log = world.filled("a")
    job = world.begun()
    world.files.fail(operation, error, path=path)
    assert not job.put_in_place()
    assert offsets_in(log) == list(range(20))
    job.finish()
    assert log.failure is None
    assert not log.is_swapping
    assert offsets_in(log) == list(range(20))
    assert world.names("a", ".swap", ".cleaned") == []
    assert world.dirtiest() is None
    world.clock.advance(COMPACTION_RETRY_MS)
    job = world.manager.next_compaction()
    assert job is not None
    assert job.run()
    assert len(offsets_in(log)) < 10


@pytest.mark.parametrize(
    ("operation", "error", "path", "after"),
    [
        pytest.param("sync", errno.ENOSPC, "*/a-0", 0, id="a sync is never repeated"),
        pytest.param("rename", errno.EIO, "*.index.cleaned", 0, id="broken"),
        pytest.param("rename", errno.ENOSPC, "*.log.swap", 1, id="half in place"),
    ],
)
def test_what_cannot_be_taken_back_takes_the_log_offline(operation: str, error: int, path: str, after: int) -> None:
    world = World()
    log = world.filled("a")
    job = world.begun()
    world.files.fail(operation, error, path=path, after=after)
    with pytest.raises(OSError, match="Errno"):
        job.put_in_place()
    assert log.failure is not None
    assert not log.is_swapping


def test_a_checkpoint_that_cannot_be_written_costs_another_run_and_no_more() -> None:
    world = World()
    log = world.filled("a")
    world.files.fail("write_at", errno.ENOSPC, path="*cleaner-offset-checkpoint.tmp")
    job = world.manager.next_compaction()
    assert job is not None
    assert job.run()
    assert log.failure is None
    assert len(offsets_in(log)) < 10
    assert world.dirtiest() is None
    world.clock.advance(COMPACTION_RETRY_MS)
    assert world.dirtiest() == "a-0"


def test_the_owner_reads_no_file_that_the_cleaners_thread_has_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = world.filled("a")
    log.segments()
    job = world.manager.next_compaction()
    assert job is not None
    read: set[Path] = set()
    look = SimulatedFiles.read_at

    def read_at(files: SimulatedFiles, path: Path, position: int, length: int) -> bytes:
        read.add(path)
        return look(files, path, position, length)

    monkeypatch.setattr(SimulatedFiles, "read_at", read_at)
    job.clean()
    by_cleaner = set(read)
    read.clear()
    assert job.begin()
    assert read
    assert read <= by_cleaner


def test_segments_that_cannot_be_held_open_are_let_go() -> None:
    world = World(open_files_max=3)
    log = world.filled("a")
    job = world.manager.next_compaction()
    assert job is not None
    job.clean()
    world.files.fail("open", errno.EMFILE, path="*.log", after=3)
    assert not job.begin()
    job.discard()
    assert not log.is_swapping
    held = sum(segment._file is not None for segment in log._segments)
    assert held <= len(world.manager._open_files) <= 3  # none beside the limit
    assert world.names("a", ".cleaned") == []
    assert offsets_in(log) == list(range(20))
