"""What topics ask of batches: their order, their compression, their times, how many replicas have them."""

import asyncio
import threading

import pytest

from pylog.broker_lite.apis import produce as produce_api
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.produce import ProducePartition
from pylog.storage import batch as batches
from pylog.storage.batch import read_header
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.support.broker_requests import fetch_one, produce_all, produce_one
from tests.support.brokers import running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles

HOUR_MS = 3_600_000


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


def on(files, work, **options):
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["slow", "refused"])
def test_batches_are_appended_in_the_order_they_came_though_the_first_takes_long(files, first):
    async def work(broker):
        await broker.create_topic("t", 2, {"compression.type": "zstd", "max.message.bytes": "40000"})
        slow = batch_of(2_000, producer_id=7)
        if first == "refused":
            slow = batch_of(1, value=bytes(700_000), codec=1)  # which unfolds to too much
        free = threading.Event()
        for _ in range(2):
            produce_api._compressor.submit(free.wait)
        try:
            answers = [asyncio.create_task(produce_one(broker, "t", slow))]
            await turns()
            for sequence in (2_000, 2_001):
                quick = batch_of(1, producer_id=7, sequence=sequence, codec=4)  # nothing is to be done
                answers.append(asyncio.create_task(produce_one(broker, "t", quick)))
                await turns()
            other = await produce_one(broker, "t", batch_of(codec=4), partition=1)
            assert other.error_code == ErrorCode.NONE  # partitions do not wait for each other
            assert not any(answer.done() for answer in answers)
        finally:
            free.set()
        results = [await answer for answer in answers]
        if first == "slow":
            assert [(one.error_code, one.base_offset) for one in results] == [(0, 0), (0, 2_000), (0, 2_001)]
        else:
            assert [one.error_code for one in results] == [ErrorCode.MESSAGE_TOO_LARGE, 0, 0]
            assert [one.base_offset for one in results] == [-1, 0, 1]
        assert broker.partition("t", 0).turn is None
        assert not broker.appends

    on(files, work)


@pytest.mark.parametrize(("name", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
@pytest.mark.parametrize("sent", range(5))
@pytest.mark.parametrize("count", [3, 2_000], ids=["few", "many"])
def test_a_topic_has_the_compression_that_it_asks_for(files, name, codec, sent, count):
    async def work(broker):
        await broker.create_topic("t", 1, {"compression.type": name})
        for turn in range(2):  # the second one is known to the producers' state
            batch = batch_of(count, codec=sent, producer_id=7, producer_epoch=1, sequence=count * turn)
            assert (await produce_one(broker, "t", batch)).base_offset == count * turn
        again = batch_of(count, codec=sent, producer_id=7, producer_epoch=1, sequence=count)
        assert (await produce_one(broker, "t", again)).base_offset == count
        records = (await fetch_one(broker, "t")).records
        (_, first), (position, second) = batches.walk(records)
        assert (first.codec, second.codec) == (codec, codec)
        kept = read_header(batch)._replace(base_offset=count, leader_epoch=0)
        changed = {"length": second.length, "crc": second.crc, "attributes": codec}
        assert second == kept._replace(**changed)
        assert batches.check(records, position) == second
        sent_records = [one._replace(offset=one.offset + count) for one in decode_batch(batch)]
        assert decode_batch(records[position:]) == sent_records

    on(files, work)


def test_a_topic_takes_what_comes_unless_it_asks(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        for codec in range(5):
            await produce_one(broker, "t", batch_of(codec=codec))
        records = (await fetch_one(broker, "t")).records
        assert [header.codec for _, header in batches.walk(records)] == [0, 1, 2, 3, 4]

    on(files, work)


def test_a_batch_that_gets_too_large_in_the_compression_of_its_topic_is_refused(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"compression.type": "uncompressed", "max.message.bytes": "5000"})
        refused = await produce_one(broker, "t", batch_of(1, value=bytes(5000), codec=1))
        assert (refused.error_code, broker.partition("t", 0).log.log_end_offset) == (ErrorCode.MESSAGE_TOO_LARGE, 0)
        assert "5073 bytes in the topic's compression" in refused.error_message

    on(files, work)


@pytest.mark.parametrize("codec", [0, 1])
def test_damage_is_seen_before_a_batch_is_compressed_anew(files, codec):
    async def work(broker):
        await broker.create_topic("t", 1, {"compression.type": "lz4"})
        damaged = batch_of(100, codec=codec)
        damaged[-20] ^= 1
        assert (await produce_one(broker, "t", damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert broker.partition("t", 0).log.log_end_offset == 0

    on(files, work)


@pytest.mark.parametrize(
    ("overrides", "times_ms", "refused"),
    [
        pytest.param({}, [HOUR_MS], [], id="an hour later"),
        pytest.param({}, [HOUR_MS + 1], [0], id="more than an hour later"),
        pytest.param({}, [0, HOUR_MS + 1, 5], [1], id="one of three is"),
        pytest.param({}, [-(10**12)], [], id="long ago"),
        pytest.param({"message.timestamp.after.max.ms": "10"}, [10, 11, 12], [1, 2], id="two are too late"),
        pytest.param({"message.timestamp.before.max.ms": "10"}, [-10, -11, 0], [1], id="one is too early"),
        pytest.param({"message.timestamp.before.max.ms": "10"}, [-10, 0], [], id="just early enough"),
        pytest.param({"message.timestamp.type": "LogAppendTime"}, [9 * HOUR_MS], [], id="the broker says when"),
    ],
)
@pytest.mark.parametrize("codec", [0, 4])
def test_records_from_other_times_are_refused_by_name(files, overrides, times_ms, refused, codec):
    async def work(broker):
        await broker.create_topic("t", 1, overrides)
        records = [Record(index, START_MS + late_ms, b"k", b"v") for index, late_ms in enumerate(times_ms)]
        answered = await produce_one(broker, "t", encode_batch(records, codec=codec))
        assert answered.error_code == (ErrorCode.INVALID_TIMESTAMP if refused else ErrorCode.NONE)
        assert [index for index, _ in answered.record_errors] == refused
        assert broker.partition("t", 0).log.log_end_offset == (0 if refused else len(records))

    on(files, work)


def test_what_is_too_late_is_known_anew_when_the_clock_has_moved_or_the_topic_is_changed(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        partition = broker.partition("t", 0)

        async def answer(late_ms):
            batch = encode_batch([Record(0, START_MS + late_ms, b"k", b"v")])
            return (await produce_one(broker, "t", batch)).error_code

        assert await answer(0) == ErrorCode.NONE
        assert await answer(HOUR_MS) == ErrorCode.NONE
        assert await answer(HOUR_MS + 1) == ErrorCode.INVALID_TIMESTAMP
        files.clock.advance(1)
        assert await answer(HOUR_MS + 1) == ErrorCode.NONE
        for options, late_ms in (
            ({"message.timestamp.after.max.ms": "10"}, 12),
            ({"message.timestamp.before.max.ms": "10"}, -10),
        ):
            partition.reconfigure(broker.config.topic(options))
            assert await answer(late_ms) == ErrorCode.INVALID_TIMESTAMP
            assert await answer(0) == ErrorCode.NONE
            assert await answer(late_ms) == ErrorCode.INVALID_TIMESTAMP, options
        partition.reconfigure(broker.config.topic({}))
        assert await answer(-10) == ErrorCode.NONE

    on(files, work)


def test_a_batch_that_lies_about_its_latest_time_does_not_fool_the_log(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        lying = batch_of(3)
        batches.pack_header(lying, 0, read_header(lying)._replace(max_timestamp=START_MS + 10 * HOUR_MS))
        assert (await produce_one(broker, "t", lying)).error_code == ErrorCode.NONE
        (_, header) = next(batches.walk((await fetch_one(broker, "t")).records))
        assert header.max_timestamp == START_MS + 2

    on(files, work)


@pytest.mark.parametrize(("acks", "code"), [(-1, ErrorCode.NOT_ENOUGH_REPLICAS), (1, ErrorCode.NONE)])
def test_more_replicas_than_there_are_can_only_be_asked_for_by_who_waits_for_them(files, acks, code):
    async def work(broker):
        await broker.create_topic("t", 1, {"min.insync.replicas": "2"})
        (result,) = await produce_all(broker, [ProducePartition("t", 0, batch_of())], acks=acks)
        assert result.error_code == code
        assert broker.partition("t", 0).log.log_end_offset == (1 if code == ErrorCode.NONE else 0)

    on(files, work)
