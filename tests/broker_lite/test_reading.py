"""What a reader is given: what is committed, and to a reader of transactions what is decided."""

import asyncio

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.batch import walk
from tests.support.broker_requests import fetch_one, list_one, produce_one
from tests.support.brokers import running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of, marker_of
from tests.support.simulated_files import SimulatedFiles

LATEST, EARLIEST, LATEST_TIME = -1, -2, -3


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


def on(files, work, **options):
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


def base_offsets(records):
    return [header.base_offset for _, header in walk(records)]


def test_only_what_is_committed_is_served(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of(2))
        broker.partition("t", 0).log.append(batch_of(3, timestamp_ms=START_MS + 100), 0)  # no high watermark yet
        fetched = await fetch_one(broker, "t")
        assert (base_offsets(fetched.records), fetched.high_watermark) == ([0], 2)
        for offset in (2, 3, 5):
            fetched = await fetch_one(broker, "t", offset)
            assert (fetched.error_code, fetched.records) == (ErrorCode.NONE, b"")
        assert (await fetch_one(broker, "t", 6)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await list_one(broker, "t", LATEST)).offset == 2
        assert (await list_one(broker, "t", START_MS + 1)).offset == 1
        assert (await list_one(broker, "t", START_MS + 100)).offset == -1
        broker.partition("t", 0).flushed(5)
        assert base_offsets((await fetch_one(broker, "t")).records) == [0, 2]
        assert (await list_one(broker, "t", START_MS + 100)).offset == 2

    on(files, work)


@pytest.mark.parametrize(
    ("offset", "bytes_max", "found"),
    [
        pytest.param(0, 1 << 20, [0, 1], id="its segment ends there"),
        pytest.param(2, len(batch_of()) + 1, [2], id="the next batch is more than it takes"),
    ],
)
def test_a_reader_who_wants_more_does_not_wait_where_there_is_more(files, offset, bytes_max, found):
    async def work(broker):
        await broker.create_topic("t", 1, {"segment.bytes": str(2 * len(batch_of()))})
        for _ in range(4):
            await produce_one(broker, "t", batch_of())
        fetching = fetch_one(broker, "t", offset, wait_ms=600_000, bytes_min=1 << 19, bytes_max=bytes_max)
        assert base_offsets((await asyncio.wait_for(fetching, 60)).records) == found

    on(files, work)


def test_a_reader_who_wants_more_waits_at_the_end(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of())
        wanted = fetch_one(broker, "t", wait_ms=600_000, bytes_min=2 * len(batch_of()))
        fetching = asyncio.create_task(wanted)
        await asyncio.sleep(0.1)
        assert not fetching.done()
        await produce_one(broker, "t", batch_of())
        assert base_offsets((await asyncio.wait_for(fetching, 60)).records) == [0, 1]

    on(files, work)


def test_a_reader_of_transactions_stops_at_the_first_that_is_open_and_is_told_what_to_drop(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        log = broker.partition("t", 0).log
        log.append(batch_of(2, producer_id=1, transactional=True), 0)  # 0, 1: aborted
        log.append(batch_of(1), 0)  # 2
        log.append(marker_of(1, commit=False), 0)  # 3
        log.append(batch_of(1, producer_id=2, transactional=True), 0)  # 4: committed
        log.append(marker_of(2, commit=True), 0)  # 5
        log.append(batch_of(1, producer_id=3, transactional=True), 0)  # 6: open
        log.append(batch_of(1), 0)  # 7
        log.advance_high_watermark(log.log_end_offset)
        plain = await fetch_one(broker, "t")
        assert (base_offsets(plain.records), plain.aborted_transactions) == ([0, 2, 3, 4, 5, 6, 7], None)
        assert (plain.high_watermark, plain.last_stable_offset) == (8, 6)
        committed = await fetch_one(broker, "t", committed=True)
        assert (base_offsets(committed.records), committed.aborted_transactions) == ([0, 2, 3, 4, 5], [(1, 0)])
        behind = await fetch_one(broker, "t", 4, committed=True)
        assert (base_offsets(behind.records), behind.aborted_transactions) == ([4, 5], [])
        at_the_open_one = await fetch_one(broker, "t", 6, committed=True)
        assert (at_the_open_one.records, at_the_open_one.aborted_transactions) == (b"", [])
        assert (await list_one(broker, "t", LATEST)).offset == 8
        assert (await list_one(broker, "t", LATEST, committed=True)).offset == 6

    on(files, work)


def test_the_record_with_the_latest_timestamp(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        assert (await list_one(broker, "t", LATEST_TIME)).offset == -1
        for timestamp_ms in (START_MS + 7, START_MS + 50, START_MS + 3):
            await produce_one(broker, "t", batch_of(1, timestamp_ms=timestamp_ms))
        found = await list_one(broker, "t", LATEST_TIME)
        assert (found.offset, found.timestamp) == (1, START_MS + 50)
        assert (await list_one(broker, "t", EARLIEST)).offset == 0
        assert (await list_one(broker, "t", -4)).error_code == ErrorCode.UNSUPPORTED_VERSION

    on(files, work)
