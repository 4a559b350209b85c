"""The rounds of upkeep, one by one, with a clock that stands still; and how they begin, fail and end."""

import asyncio
import errno
import logging
import threading
from uuid import UUID

import pytest

from pylog.broker_lite import upkeep
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.upkeep import LOOK_MS, Upkeep
from pylog.storage.errors import CleanerFailed
from pylog.storage.log_config import LogConfig
from pylog.storage.manager import LogManager
from tests.support.broker_requests import fetch_one, list_one, produce_one
from tests.support.brokers import busy_disk, running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.faults

EARLIEST, LATEST = -2, -1
TOPIC_ID, NO_TOPIC_ID = UUID(int=1), UUID(int=0)


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


def on(files, work, **options):
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


def names_in(files, partition):
    return [name.split("/")[-1] for name in files.tree() if name.startswith(f"data/{partition}/")]


async def produce_segments(broker, topic, count=3):
    """A batch a segment; the last one is active."""
    for _ in range(count):
        assert (await produce_one(broker, topic, batch_of(2, timestamp_ms=broker.now_ms()))).error_code == 0


ONE_BATCH_A_SEGMENT = {"segment.bytes": "120"}


# -- syncing


def test_a_log_is_synced_when_its_time_has_come(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"flush.ms": "500"})
        await broker.create_topic("never", 1)
        for topic in ("t", "never"):
            await produce_one(broker, topic, batch_of())
        log = broker.partition("t", 0).log
        files.clock.advance(499)
        await broker.upkeep.flush()
        assert log.recovery_point == 0
        files.clock.advance(1)
        await broker.upkeep.flush()
        assert log.recovery_point == 1
        assert broker.partition("never", 0).log.recovery_point == 0

    on(files, work)


def test_sealed_segments_are_synced_whatever_the_settings(files):
    async def work(broker):
        await broker.create_topic("t", 1, ONE_BATCH_A_SEGMENT)
        await broker.create_topic("due", 1, {"flush.ms": "0"})
        await produce_segments(broker, "t")
        await produce_one(broker, "due", batch_of())
        await broker.upkeep.flush_sealed()
        assert broker.partition("t", 0).log.recovery_point == 6
        assert broker.partition("due", 0).log.recovery_point == 0
        await broker.upkeep.flush()
        assert broker.partition("due", 0).log.recovery_point == 1

    on(files, work)


def test_a_sync_that_fails_does_not_keep_the_others_from_theirs(files):
    async def work(broker):
        await broker.create_topic("t", 3, {"flush.ms": "0"})
        for partition in range(3):
            await produce_one(broker, "t", batch_of(), partition=partition)
        files.fail("sync", errno.EIO, path="*/t-1/*")
        await broker.upkeep.flush()
        logs = [broker.partitions["t", partition].log for partition in range(3)]
        assert [log.failure is None for log in logs] == [True, False, True]
        assert [log.recovery_point for log in logs] == [1, 0, 1]

    on(files, work)


def test_checkpoints_spare_the_next_start_the_scan(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of(5))
        broker.partition("t", 0).log.flush()
        await broker.upkeep.checkpoint()
        return files.read(files.root / "data" / "recovery-point-offset-checkpoint").decode().splitlines()

    assert "t 0 5" in on(files, work, crash=True)


# -- deletion


def test_records_that_have_had_their_time_go_first_from_sight_then_from_the_disk(files):
    async def work(broker):
        overrides = ONE_BATCH_A_SEGMENT | {"retention.ms": "1000", "file.delete.delay.ms": "100"}
        await broker.create_topic("t", 1, overrides)
        await broker.create_topic("kept", 1, ONE_BATCH_A_SEGMENT)
        await produce_segments(broker, "t", 2)
        await produce_segments(broker, "kept", 2)
        files.clock.advance(1500)
        await produce_segments(broker, "t", 1)
        await broker.upkeep.delete()
        assert (await list_one(broker, "t", EARLIEST)).offset == 4
        assert (await list_one(broker, "kept", EARLIEST)).offset == 0
        assert (await fetch_one(broker, "t", 0)).error_code == 1
        assert f"{0:020d}.log.deleted" in names_in(files, "t-0")
        await broker.upkeep.remove_deleted()
        assert f"{0:020d}.log.deleted" in names_in(files, "t-0")
        files.clock.advance(100)
        await broker.upkeep.remove_deleted()
        assert not [name for name in names_in(files, "t-0") if name.startswith(f"{0:020d}.")]

    async def earliest(broker):
        return (await list_one(broker, "t", EARLIEST)).offset

    on(files, work, crash=True)
    assert on(files, earliest) == 4


def test_a_read_that_has_begun_outlives_the_deletion(files):
    async def work(broker):
        await broker.create_topic("t", 1, ONE_BATCH_A_SEGMENT | {"retention.ms": "0", "file.delete.delay.ms": "0"})
        await produce_segments(broker, "t", 2)
        found = broker.partition("t", 0).log.read(0, 1000)
        files.clock.advance(1)
        await broker.upkeep.delete()
        await broker.upkeep.remove_deleted()
        return len(found.file.read_at(found.position, found.length)) == found.length

    assert on(files, work)


def test_an_error_in_one_log_does_not_keep_the_others_segments(files, caplog):
    async def work(broker):
        await broker.create_topic("t", 3, ONE_BATCH_A_SEGMENT | {"retention.ms": "0"})
        for partition in range(3):
            for _ in range(2):
                await produce_one(broker, "t", batch_of(2), partition=partition)
        files.clock.advance(10)
        files.fail("rename", errno.EIO, path="*/t-1/*", times=None)
        await broker.upkeep.delete()
        deleted = [f"{0:020d}.log.deleted" in names_in(files, f"t-{partition}") for partition in range(3)]
        assert deleted == [True, False, True]

    on(files, work)
    assert "t-1: old segments stay" in caplog.text


def test_segments_that_a_failed_round_left_below_the_start_go_with_the_next(files):
    async def work(broker):
        await broker.create_topic("t", 1, ONE_BATCH_A_SEGMENT | {"retention.ms": "100"})
        await produce_segments(broker, "t", 2)
        files.clock.advance(200)
        await produce_segments(broker, "t", 1)
        files.fail("*", errno.EIO, path="*/log-start-offset-checkpoint*")
        await broker.upkeep.delete()
        assert f"{0:020d}.log" in names_in(files, "t-0")
        await broker.upkeep.delete()
        assert f"{0:020d}.log.deleted" in names_in(files, "t-0")

    on(files, work)


@pytest.mark.parametrize("work_of_a_round", ["delete", "compact"])
def test_the_loop_has_its_turns_while_the_times_of_many_logs_are_looked_at(files, work_of_a_round):
    count = 12

    async def fill(broker):
        await broker.create_topic("t", count, ONE_BATCH_A_SEGMENT)
        for partition in range(count):
            for _ in range(2):
                await produce_one(broker, "t", batch_of(2), partition=partition)

    async def look(broker):
        logs = [broker.partition("t", partition).log for partition in range(count)]
        seen = []

        async def watch():
            while len(seen) < 1000:
                seen.append(sum(log.has_looked_at_times for log in logs))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await getattr(broker.upkeep, work_of_a_round)()
        watching.cancel()
        assert {*range(2, count)} <= {*seen}  # one after the other
        assert all(log.has_looked_at_times for log in logs)
        assert broker._logs.logs_to_look_at() == []

    on(files, fill)
    on(files, look)


def test_the_loop_has_its_turns_while_the_records_of_many_logs_expire(files, monkeypatch):
    monkeypatch.setattr(upkeep, "LOGS_A_TURN", 2)
    count = 6

    async def work(broker):
        await broker.create_topic("t", count, ONE_BATCH_A_SEGMENT | {"retention.ms": "100"})
        logs = [broker.partition("t", partition).log for partition in range(count)]
        for partition in range(count):
            for _ in range(2):
                await produce_one(broker, "t", batch_of(2, timestamp_ms=START_MS), partition=partition)
        files.clock.advance(1000)
        seen, seen_shortened = set(), set()

        async def watch():
            while True:
                seen.add(sum(log.log_start_offset > 0 for log in logs))
                seen_shortened.add(sum(log.first_base_offset > 0 for log in logs))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await broker.upkeep.delete()
        watching.cancel()
        assert min(len(seen), len(seen_shortened)) >= count // 2  # and not all at once
        assert all(log.log_start_offset == 4 for log in logs)
        assert f"{0:020d}.log.deleted" in names_in(files, "t-5")

    on(files, work)


def test_a_log_whose_times_cannot_be_read_does_not_keep_the_others(files, caplog):
    async def fill(broker):
        await broker.create_topic("t", 2, ONE_BATCH_A_SEGMENT | {"retention.ms": "100"})
        for partition in range(2):
            for _ in range(2):
                await produce_one(broker, "t", batch_of(2), partition=partition)

    async def look(broker):
        files.clock.advance(1000)
        files.fail("*read*", errno.EIO, path="*/t-0/*.log", times=None)
        await broker.upkeep.delete()
        assert [broker.is_online("t", partition) for partition in range(2)] == [False, True]
        assert f"{0:020d}.log.deleted" in names_in(files, "t-1")

    on(files, fill)
    on(files, look)


def test_a_log_whose_cleaner_fails_does_not_keep_the_others_from_theirs(files):
    tried = []

    class Cleaner(StuckCleaner):
        def __init__(self, plan):
            tried.append(plan.directory.name)

        def wait(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    async def main():
        config = LogConfig(segment_bytes=120, compact=True, delete=False)
        logs = LogManager([files.root / "data"], config, files=files, clock=files.clock, start_cleaner=Cleaner)
        for partition in range(3):
            log = logs.open("t", partition, TOPIC_ID)
            for _ in range(3 + partition):
                log.append(batch_of(2), 0)
            log.advance_high_watermark(log.log_end_offset)

        async def on_disk(work, *args):
            return work(*args)

        upkeep = Upkeep(logs, lambda: BrokerConfig.parse({}), on_disk, lambda log: on_disk(log.flush))
        await upkeep.compact_all()
        await upkeep.close()
        logs.close()

    asyncio.run(main())
    assert sorted(tried) == ["t-0", "t-1", "t-2"]


def test_a_topic_that_is_deleted_in_the_middle_of_a_round(files, caplog):
    async def work(broker):
        await broker.create_topic("t", 1, ONE_BATCH_A_SEGMENT | {"retention.ms": "0"})
        await produce_segments(broker, "t", 2)
        files.clock.advance(10)
        with busy_disk(broker) as disk:
            round_of_deletion = asyncio.create_task(broker.upkeep.delete())
            deletion = asyncio.create_task(broker.delete_topic("t", NO_TOPIC_ID))
            await asyncio.sleep(0)
            disk.set()
            await deletion
            await round_of_deletion

    with caplog.at_level(logging.WARNING):
        on(files, work)
    assert caplog.text == ""


# -- when, and how it ends


def scripted(waits, told):
    """Waits as often as `waits` says, and then says that it is time to stop."""

    async def wait_ms(interval_ms):
        told.append(interval_ms)
        await asyncio.sleep(0)
        return len(told) > waits

    return wait_ms


def test_a_round_that_fails_is_told_once_and_run_again(caplog):
    told, ran = [], []

    async def fails():
        ran.append(True)
        raise OSError(errno.EIO, "no disk") if len(ran) < 4 else KeyError("a bug")

    async def main():
        upkeep = Upkeep(None, lambda: BrokerConfig.parse({}), None, None, scripted(5, told))
        await upkeep._every(7, lambda: 30, fails)

    asyncio.run(main())
    assert told == [7, 30, 30, 30, 30, 30]
    assert len(ran) == 5
    assert caplog.text.count("fails failed: [Errno 5] no disk") == 1
    assert caplog.text.count("a bug") >= 2


@pytest.mark.parametrize(
    ("config", "intervals"),
    [
        pytest.param({}, {LOOK_MS: 2, 60_000: 1, 300_000: 1, 15_000: 1, 600_000: 1}, id="Kafka's own"),
        pytest.param(
            {
                "log.flush.scheduler.interval.ms": 5000,
                "log.flush.offset.checkpoint.interval.ms": 11,
                "log.retention.check.interval.ms": 12,
                "log.cleaner.backoff.ms": 13,
                "offsets.retention.check.interval.ms": 14,
            },
            {LOOK_MS: 2, 5000: 1, 11: 1, 12: 1, 13: 1, 14: 1},
            id="others",
        ),
    ],
)
def test_each_round_has_its_interval(files, config, intervals):
    told = []

    async def work(broker):
        expire = broker.coordinator.expire
        flush = broker._flushes.flush
        upkeep = Upkeep(broker._logs, lambda: broker.config, broker._on_disk, flush, scripted(100, told), expire)
        upkeep.start()
        while len(told) < 100:
            await asyncio.sleep(0)
        await upkeep.close()

    on(files, work, config=config)
    assert set(told) == {0, 30_000, *intervals}


def test_closing_waits_for_the_round_under_way(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"flush.ms": "0"})
        await produce_one(broker, "t", batch_of())
        with busy_disk(broker) as disk:
            flush = broker._flushes.flush
            upkeep = Upkeep(broker._logs, lambda: broker.config, broker._on_disk, flush, scripted(5, []))
            upkeep.start()
            for _ in range(5):
                await asyncio.sleep(0)
            closing = asyncio.create_task(upkeep.close())
            for _ in range(5):
                await asyncio.sleep(0)
            assert not closing.done()
            disk.set()
            await closing
            return broker.partition("t", 0).log.recovery_point

    assert on(files, work) == 1


class StuckCleaner:
    """A cleaner that runs until it is stopped."""

    def __init__(self, plan):
        self.stopped = threading.Event()

    def wait(self):
        raise CleanerFailed("stopped" if self.stopped.wait(20) else "nobody has stopped this cleaner")

    def stop(self):
        self.stopped.set()


@pytest.mark.parametrize("begun", [True, False], ids=["while it cleans", "before it has begun"])
def test_closing_stops_the_cleaner_and_says_nothing(files, caplog, begun):
    started = threading.Event()

    class Cleaner(StuckCleaner):
        def wait(self):
            started.set()
            super().wait()

    async def main():
        config = LogConfig(segment_bytes=120, compact=True, delete=False)
        logs = LogManager([files.root / "data"], config, files=files, clock=files.clock, start_cleaner=Cleaner)
        log = logs.open("t", 0, TOPIC_ID)
        for _ in range(3):
            log.append(batch_of(2), 0)
        log.advance_high_watermark(log.log_end_offset)

        async def on_disk(work, *args):
            return work(*args)

        upkeep = Upkeep(logs, lambda: BrokerConfig.parse({}), on_disk, lambda log: on_disk(log.flush))
        upkeep.start()
        await asyncio.sleep(0)
        if begun:
            while not started.is_set():
                await asyncio.sleep(0)
        await upkeep.close()
        logs.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.text == ""
