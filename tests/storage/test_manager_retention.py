"""Retention and deletion of records through the manager: start, checkpoint, rename, removal, each in its time."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of, bytes_of, committed, marker_of, offsets_in
from tests.support.simulated_files import SimulatedFiles

DATA = Path("/sim/data")
ID = UUID(int=1)
BATCH_BYTES = len(batch_of(2))
CONFIG = LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=1000, file_delete_delay_ms=60)


class World:
    """A manager on a simulated disk, with a clock of its own."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.clock = SettableClock(START_MS)
        self.files = SimulatedFiles(self.clock)
        self.config = config
        self.manager = self.managed()

    def managed(self) -> LogManager:
        return LogManager([DATA], self.config, files=self.files, clock=self.clock)

    def filled(self, topic: str = "orders", appends: int = 5, config: LogConfig | None = None) -> PartitionLog:
        """Batches of two, two a segment, 100 ms apart: base offsets 0, 4, 8."""
        log = self.manager.open(topic, 0, ID, config)
        for number in range(appends):
            committed(log, batch_of(2, timestamp_ms=START_MS + 100 * number))
        return log

    def crashed(self, seed: int | None = None) -> LogManager:
        """As the next process finds it."""
        self.files = self.files.after_machine_crash(seed)
        return self.managed()

    def names(self, topic: str = "orders", suffix: str = "") -> list[str]:
        return [name for name in sorted(self.files.sizes_in(DATA / f"{topic}-0")) if name.endswith(suffix)]

    def bases(self, topic: str = "orders") -> list[int]:
        return [int(name[:20]) for name in self.names(topic, ".log")]


def test_segments_go_when_their_latest_record_is_too_old() -> None:
    world = World()
    log = world.filled()
    starts = []
    for now in (1000, 1101, 1102, 1301, 1302, 1401, 1402, 5000):
        world.clock.set(START_MS + now)
        world.manager.retain()
        starts.append(log.log_start_offset)
        assert offsets_in(log) == list(range(log.log_start_offset, 10))
    assert starts == [0, 0, 4, 4, 8, 8, 10, 10]
    assert world.bases() == [10]
    assert committed(log, batch_of(1, timestamp_ms=START_MS + 5000)) == 10


def test_a_log_that_is_too_large_loses_its_oldest_segments() -> None:
    world = World(LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=-1, retention_bytes=3 * BATCH_BYTES))
    log = world.filled(appends=9)
    world.manager.retain()
    assert log.size_bytes == 3 * BATCH_BYTES
    assert offsets_in(log) == list(range(12, 18))


def test_records_without_a_time_are_as_old_as_their_file() -> None:
    world = World()
    log = world.manager.open("orders", 0, ID)
    for _ in range(4):
        committed(log, batch_of(1, timestamp_ms=-1))
        world.clock.advance(100)
    assert world.bases() == [0, 2]
    world.clock.set(START_MS + 1000 + 101)
    world.manager.retain()
    assert log.log_start_offset == 2


def test_every_log_keeps_to_its_own_settings() -> None:
    world = World()
    short, long = world.filled("short"), world.filled("long", config=LogConfig(segment_bytes=2 * BATCH_BYTES))
    compacted = world.filled("compacted", config=LogConfig(delete=False, compact=True, retention_ms=1))
    world.clock.advance(3000)
    world.manager.retain()
    assert [log.log_start_offset for log in (short, long, compacted)] == [10, 0, 0]


def test_what_is_not_committed_is_not_expired() -> None:
    world = World()
    log = world.manager.open("orders", 0, ID)
    for number in range(5):
        log.append(batch_of(2, timestamp_ms=START_MS + number), 0)
    log.advance_high_watermark(5)
    world.clock.advance(5000)
    world.manager.retain()
    assert log.log_start_offset == 4


# -- the files


def test_files_keep_their_bytes_for_a_while_under_another_name() -> None:
    world = World()
    log = world.filled()
    part = log.read(0, 1 << 20)
    assert part is not None
    before = bytes_of(part)
    world.clock.set(START_MS + 1102)
    world.manager.retain()
    deleted = [f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")]
    assert world.names(suffix=".deleted") == deleted
    assert bytes_of(part) == before
    world.clock.advance(59)
    world.manager.remove_buried()
    assert world.names(suffix=".deleted") == deleted
    world.clock.advance(1)
    world.manager.remove_buried()
    assert world.names(suffix=".deleted") == []
    assert not [name for name in world.names() if name.startswith(f"{0:020d}.")]
    assert bytes_of(part) == before


def test_a_restart_removes_what_was_waiting() -> None:
    world = World()
    world.filled()
    world.manager.delete_records("orders", 0, 5)
    assert world.names(suffix=".deleted")
    log = world.crashed(None).open("orders", 0, ID)
    assert world.names(suffix=".deleted") == []
    assert (log.log_start_offset, log.log_end_offset >= 5) == (5, True)


def test_a_file_that_cannot_be_removed_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for topic in ("first", "second"):
        world.filled(topic)
    world.clock.advance(5000)
    world.manager.retain()
    world.clock.advance(60)
    world.files.fail("remove", errno.EIO, path="*/first-0/*.deleted", times=None)
    world.manager.remove_buried()
    assert world.names("second", ".deleted") == []
    assert "Input/output" in caplog.text


def test_a_log_that_fails_does_not_hold_up_the_retention_of_others(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    logs = [world.filled(topic) for topic in ("first", "second", "third")]
    world.manager.close()
    world.manager = world.managed()
    logs = [world.manager.open(topic, 0, ID) for topic in ("first", "second", "third")]
    world.clock.advance(5000)
    world.files.fail("read_at", errno.EIO, path="*/first-0/*", times=None)
    world.files.fail("create_empty", errno.EIO, path="*/second-0/*.log", times=None)
    world.manager.retain()
    assert [log.failure is None for log in logs] == [False, False, True]
    assert world.bases("third") == [10]
    assert "first-0" in caplog.text
    assert "second-0" in caplog.text


def test_the_steps_can_be_taken_one_by_one() -> None:
    """As the broker does, which gives those that wait for the disk to another thread."""
    world = World()
    log = world.filled()
    world.clock.set(START_MS + 1102)
    moved = world.manager.expire()
    assert moved == [("orders", 0)]
    assert (log.log_start_offset, world.bases()) == (4, [0, 4, 8])
    assert world.manager.detach(moved) == []  # not before the start is on the disk
    world.manager.store_starts()
    assert world.files.read(DATA / "log-start-offset-checkpoint") == b"0\n1\norders 0 4\n"
    (doomed,) = world.manager.detach(moved)
    assert (doomed.log.directory, doomed.base_offsets) == (DATA / "orders-0", [0])
    assert world.bases() == [0, 4, 8]
    world.manager.bury([doomed])
    assert world.bases() == [4, 8]
    assert world.manager.expire() == []


def test_what_an_interrupted_round_left_is_finished_by_the_next() -> None:
    world = World()
    world.filled()
    world.clock.set(START_MS + 1102)
    world.manager.expire()
    world.manager.store_starts()
    assert world.manager.expire() == [("orders", 0)]
    world.manager.retain()
    assert world.bases() == [4, 8]


def test_what_could_not_be_buried_is_buried_by_the_next_round() -> None:
    world = World()
    world.filled()
    world.clock.set(START_MS + 1102)
    world.files.fail("rename", errno.EIO, path="*.timeindex")
    world.manager.retain()
    world.manager.retain()
    world.clock.advance(60)
    world.manager.remove_buried()
    assert not [name for name in world.names() if name.startswith(f"{0:020d}")]


@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4, 5])
def test_a_crash_at_any_step_of_a_deletion_keeps_what_was_not_to_go(seed: int | None) -> None:
    world = World()
    log = world.filled()
    log.flush()
    world.manager.checkpoint()
    world.files.sync_all()
    found: list[int] = []

    def look() -> None:
        files = world.files.after_machine_crash(seed)
        manager = LogManager([DATA], world.config, files=files, clock=world.clock)
        again = manager.open("orders", 0, ID)
        assert again.log_start_offset in (0, 5)
        assert offsets_in(again) == list(range(again.log_start_offset, 10))
        found.append(again.log_start_offset)

    world.files.before_operation = look
    world.manager.delete_records("orders", 0, 5)
    look()
    assert found[0] == 0
    assert found[-1] == 5
    assert found == sorted(found)


def test_files_are_removed_each_at_its_own_time() -> None:
    world = World()
    slow = LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=1000, file_delete_delay_ms=1000)
    world.filled("slow", config=slow)
    world.filled("quick")
    world.clock.set(START_MS + 1102)
    world.manager.retain()
    left = []
    for advance_ms in (59, 1, 939, 1):
        world.clock.advance(advance_ms)
        world.manager.remove_buried()
        left.append([len(world.names(topic, ".deleted")) for topic in ("slow", "quick")])
    assert left == [[3, 3], [3, 0], [3, 0], [0, 0]]


# -- a disk that is full


def _full(world: World) -> PartitionLog:
    log = world.filled(appends=9)  # 0, 4, 8, 12, and 16, which is active
    log.flush()
    world.manager.checkpoint()
    world.files.sync_all()
    world.files.capacity_bytes = world.files.used_bytes
    return log


@pytest.mark.parametrize(
    ("config", "bases"),
    [
        pytest.param(LogConfig(segment_bytes=2 * BATCH_BYTES, retention_bytes=3 * BATCH_BYTES), [12, 16], id="size"),
        pytest.param(LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=1000), [16], id="time, which all have had"),
    ],
)
def test_retention_makes_room_on_a_disk_that_is_full(config: LogConfig, bases: list[int]) -> None:
    world = World(config)
    log = _full(world)
    with pytest.raises(OSError, match="No space left"):
        log.append(batch_of(2), 0)
    world.clock.advance(10_000)
    world.manager.retain()
    world.clock.advance(config.file_delete_delay_ms)
    world.manager.remove_buried()
    assert world.bases() == bases
    assert log.failure is None
    assert log.append(batch_of(2), 0).base_offset == 18
    start = log.log_start_offset
    world.manager.checkpoint()
    log.flush()
    again = world.crashed().open("orders", 0, ID)
    assert again.log_start_offset == start
    assert offsets_in(again) == list(range(start, 20))


def test_deleted_records_do_not_go_before_their_start_is_on_the_disk_full_or_not() -> None:
    world = World()
    _full(world)
    with pytest.raises(OSError, match="No space left"):
        world.manager.delete_records("orders", 0, 9)
    world.manager.bury(world.manager.detach([("orders", 0)]))
    assert world.bases() == [0, 4, 8, 12, 16]


@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4, 5])
def test_a_crash_at_any_step_on_a_full_disk_keeps_what_was_not_to_go(seed: int | None) -> None:
    world = World(LogConfig(segment_bytes=2 * BATCH_BYTES, retention_bytes=3 * BATCH_BYTES))
    _full(world)
    found: list[int] = []

    def look() -> None:
        files = world.files.after_machine_crash(seed)
        files.capacity_bytes = None
        again = LogManager([DATA], world.config, files=files, clock=world.clock).open("orders", 0, ID)
        assert again.cuts == []
        assert again.log_start_offset in (0, 4, 8, 12)
        assert offsets_in(again) == list(range(again.log_start_offset, 18))
        found.append(again.log_start_offset)

    world.files.before_operation = look
    world.manager.retain()
    look()
    assert found == sorted(found)
    assert {found[0], found[-1]} == {0, 12}


# -- records


def test_deleted_records_stay_deleted() -> None:
    world = World()
    log = world.filled()
    log.flush()
    world.manager.delete_records("orders", 0, 5)
    assert world.bases() == [4, 8]
    log = world.crashed().open("orders", 0, ID)
    assert (log.log_start_offset, offsets_in(log)) == (5, list(range(5, 10)))


def test_snapshots_go_with_their_segments() -> None:
    world = World()
    world.filled()
    assert world.names(suffix=".snapshot") == [f"{base:020d}.snapshot" for base in (4, 8)]
    world.manager.delete_records("orders", 0, 9)
    assert world.names(suffix=".snapshot") == [f"{8:020d}.snapshot"]


# -- producers


def test_producers_that_wrote_nothing_for_long_are_forgotten() -> None:
    world = World(LogConfig(producer_expiration_ms=1000))
    log = world.manager.open("orders", 0, ID)
    committed(log, batch_of(1, producer_id=7))
    committed(log, batch_of(1, producer_id=8, transactional=True))
    world.clock.set(START_MS + 999)
    world.manager.expire()
    assert len(log.producers) == 2
    world.clock.set(START_MS + 1000)
    world.manager.expire()
    assert [view.producer_id for view in log.producers.views()] == [8]  # it has a transaction open
    committed(log, marker_of(8, commit=True, timestamp_ms=START_MS + 1000))
    world.clock.advance(2000)
    world.manager.expire()
    assert len(log.producers) == 0
    assert not log.append(batch_of(1, producer_id=7), 0).duplicate
