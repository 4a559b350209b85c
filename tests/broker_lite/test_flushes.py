"""Who waits for which sync: a log's own, begun after it was asked for, and nobody else's."""

import asyncio
import threading

import pytest

from pylog.broker_lite.flushes import Flushes
from pylog.storage.errors import LogOffline
from tests.support.broker_requests import produce_one
from tests.support.brokers import running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles

SECONDS_MAX = 30


class SlowLog:
    """A flush has what was appended before it, and ends when it may."""

    def __init__(self):
        self.end = self.on_disk = self.flushes = 0
        self.may_end = threading.Semaphore(0)
        self.fails = False

    def flush(self):
        end, fails = self.end, self.fails
        self.flushes += 1
        assert self.may_end.acquire(timeout=SECONDS_MAX)
        if fails:
            raise LogOffline("no disk")
        self.on_disk = end


def with_flushes(work, threads=2):
    async def main():
        flushes = Flushes(threads)
        await asyncio.wait_for(work(flushes), SECONDS_MAX)
        await flushes.close()

    asyncio.run(main())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def test_a_log_does_not_wait_for_another():
    async def work(flushes):
        slow, quick = SlowLog(), SlowLog()
        held = flushes.flush(slow)
        quick.may_end.release()
        await flushes.flush(quick)
        assert not held.done()
        slow.may_end.release()
        await held

    with_flushes(work)


def test_whoever_asks_meanwhile_shares_the_next_flush():
    async def work(flushes):
        log = SlowLog()
        first = flushes.flush(log)
        await until(lambda: log.flushes == 1)
        asked = []
        for _ in range(10):
            log.end += 1
            asked.append(flushes.flush(log))
        log.may_end.release()
        await first
        assert not any(one.done() for one in asked)
        log.may_end.release()
        await asyncio.gather(*asked)
        assert (log.on_disk, log.flushes) == (10, 2)

    with_flushes(work)


def test_a_log_that_many_ask_for_leaves_threads_to_others():
    async def work(flushes):
        busy, other = SlowLog(), SlowLog()
        asked = [flushes.flush(busy) for _ in range(10)]
        other.may_end.release()
        await flushes.flush(other)
        assert not any(one.done() for one in asked)
        busy.may_end.release(2)
        await asyncio.gather(*asked)

    with_flushes(work)


@pytest.mark.parametrize("failed", [0, 1], ids=["the one under way", "the one that waits"])
def test_a_failure_is_told_to_those_whose_flush_it_was(failed):
    async def work(flushes):
        log = SlowLog()
        log.fails = failed == 0
        asked = [flushes.flush(log)]
        await until(lambda: log.flushes == 1)
        log.fails = failed == 1
        asked += [flushes.flush(log), flushes.flush(log)]
        log.may_end.release(2)
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(one, LogOffline) for one in found] == [failed == 0, failed == 1, failed == 1]
        log.fails = False
        log.may_end.release()
        await flushes.flush(log)

    with_flushes(work)


def test_closing_waits_for_all_that_was_asked_for():
    async def work(flushes):
        log = SlowLog()
        asked = [flushes.flush(log), flushes.flush(log)]
        closing = asyncio.create_task(flushes.close())
        log.may_end.release()
        await until(lambda: log.flushes == 2)
        assert not closing.done()
        log.may_end.release()
        await closing
        assert all(one.done() for one in asked)

    with_flushes(work)


def test_records_are_synced_while_logs_are_made_and_deleted():
    files = SimulatedFiles(SettableClock(START_MS))

    async def work(broker):
        await broker.create_topic("t", 1, {"flush.messages": "1"})
        free = threading.Event()
        try:
            broker._disk.submit(free.wait, SECONDS_MAX)
            making = asyncio.create_task(broker.create_topic("other", 1))
            answer = await asyncio.wait_for(produce_one(broker, "t", batch_of()), SECONDS_MAX / 2)
            assert not making.done()
        finally:
            free.set()
        await making
        return answer.error_code, broker.partition("t", 0).log.high_watermark

    assert running([files.root / "data"], work, files=files, clock=files.clock) == (0, 1)
