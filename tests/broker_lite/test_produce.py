"""What a producer is answered: repeats, errors, timestamps, and when the disk has to have it first."""

import asyncio
import errno
import threading
import time
from contextlib import contextmanager

import pytest

from pylog.broker_lite.api import Request
from pylog.broker_lite.apis import produce as produce_api
from pylog.broker_lite.connection import Unheard
from pylog.broker_lite.errors import ERROR_CODE
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from pylog.storage import batch as batches
from pylog.storage import errors as storage_errors
from pylog.storage.batch import read_header
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.support.broker_requests import fetch_one, list_one, produce_all, produce_one
from tests.support.brokers import busy_disk, commit, running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles

LATEST = -1


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


def on(files, work, **options):
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


def lying(**fields):
    batch = batch_of()
    batches.pack_header(batch, 0, read_header(batch)._replace(**fields))
    return batch


def test_a_batch_that_comes_again_is_answered_as_the_first_time(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of(3))
        sent = [batch_of(2, producer_id=7, sequence=sequence) for sequence in (0, 2)]
        first = [await produce_one(broker, "t", batch) for batch in sent]
        again = [await produce_one(broker, "t", batch) for batch in sent]
        assert [result.base_offset for result in first] == [3, 5]
        assert again == first
        assert all(result.error_code == ErrorCode.NONE for result in again)
        assert broker.partition("t", 0).log.log_end_offset == 7

    on(files, work)


def test_a_batch_that_comes_again_after_a_restart_is_known(files):
    async def write(broker):
        await broker.create_topic("t", 1)
        return await produce_one(broker, "t", batch_of(2, producer_id=7))

    async def again(broker):
        return await produce_one(broker, "t", batch_of(2, producer_id=7))

    first = on(files, write, crash=True)
    assert on(files, again) == first


@pytest.mark.parametrize(
    ("overrides", "before", "refused", "code"),
    [
        pytest.param(
            {},
            batch_of(producer_id=7, producer_epoch=1),
            batch_of(producer_id=7, producer_epoch=0),
            ErrorCode.INVALID_PRODUCER_EPOCH,
            id="an older instance of the producer",
        ),
        pytest.param(
            {},
            batch_of(producer_id=7, sequence=0),
            batch_of(producer_id=7, sequence=2),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            id="a gap in the sequence",
        ),
        pytest.param(
            {}, batch_of(), batch_of(timestamp_ms=-5), ErrorCode.INVALID_TIMESTAMP, id="a time before all time"
        ),
        pytest.param(
            {"segment.bytes": "100"},
            batch_of(),
            batch_of(20),
            ErrorCode.RECORD_LIST_TOO_LARGE,
            id="more than a segment",
        ),
        pytest.param(
            {}, batch_of(), lying(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="a codec nobody knows"
        ),
        pytest.param({}, batch_of(), lying(attributes=0x40), ErrorCode.INVALID_RECORD, id="a delete horizon"),
        pytest.param(
            {}, batch_of(), batch_of(transactional=True, producer_id=7), ErrorCode.INVALID_TXN_STATE, id="transactions"
        ),
    ],
)
def test_what_is_refused_is_told_why_and_changes_nothing(files, overrides, before, refused, code):
    async def work(broker):
        await broker.create_topic("t", 1, overrides)
        assert (await produce_one(broker, "t", before)).error_code == ErrorCode.NONE
        result = await produce_one(broker, "t", refused)
        assert (result.error_code, result.base_offset) == (code, -1)
        assert result.error_message
        assert broker.partition("t", 0).log.log_end_offset == 1

    on(files, work)


def test_every_error_of_the_storage_has_a_code():
    kinds = {
        kind
        for kind in vars(storage_errors).values()
        if isinstance(kind, type) and issubclass(kind, storage_errors.StorageError)
    }
    # Those that no request meets: the base, the start of a broker, the cleaner.
    assert kinds - set(ERROR_CODE) == {
        storage_errors.StorageError,
        storage_errors.DataDirectoryInUse,
        storage_errors.CleanerFailed,
        storage_errors.DedupeBufferTooSmall,
    }


def test_append_time_is_in_the_answer_and_in_the_log(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
        await broker.create_topic("created", 1)
        files.clock.set(START_MS + 5000)
        result = await produce_one(broker, "t", batch_of(3, timestamp_ms=START_MS))
        assert result.log_append_time_ms == START_MS + 5000
        header = read_header((await fetch_one(broker, "t")).records)
        assert (header.timestamp_type, header.max_timestamp) == (1, START_MS + 5000)
        repeated = batch_of(producer_id=7)
        first = await produce_one(broker, "t", repeated)
        files.clock.advance(1000)
        assert (await produce_one(broker, "t", repeated)) == first
        assert (await produce_one(broker, "created", batch_of())).log_append_time_ms == -1

    on(files, work)


def test_records_that_contradict_their_header_are_believed_and_cost_only_their_batch(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        lie = batch_of(2, timestamp_ms=START_MS + 100)
        lie[batches.HEADER_BYTES] ^= 0x7F  # the length of the first record
        batches.pack_header(lie, 0, read_header(lie))
        sent = [batch_of(2), lie, batch_of(2, timestamp_ms=START_MS + 200)]
        assert [(await produce_one(broker, "t", batch)).base_offset for batch in sent] == [0, 2, 4]
        assert len((await fetch_one(broker, "t")).records) == sum(map(len, sent))
        found = [await list_one(broker, "t", START_MS + ms) for ms in (0, 100, 200)]
        assert [(one.error_code, one.offset) for one in found] == [(0, 0), (ErrorCode.CORRUPT_MESSAGE, -1), (0, 4)]
        assert broker.is_online("t", 0)

    on(files, work)


# -- flush.messages


def test_an_answer_waits_for_the_disk_and_readers_wait_with_it(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"flush.messages": "2"})
        assert (await produce_one(broker, "t", batch_of())).error_code == ErrorCode.NONE
        assert (await list_one(broker, "t", LATEST)).offset == 1
        with busy_disk(broker) as disk:
            answer = asyncio.create_task(produce_one(broker, "t", batch_of()))
            reader = asyncio.create_task(fetch_one(broker, "t", 1, wait_ms=60_000))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not answer.done()
            assert (await list_one(broker, "t", LATEST)).offset == 1
            assert len((await fetch_one(broker, "t", 0)).records) == len(batch_of())
            assert (await fetch_one(broker, "t", 1)).records == b""
            disk.set()
            assert (await answer).base_offset == 1
            assert (await list_one(broker, "t", LATEST)).offset == 2
            assert (await reader).high_watermark == 2

    on(files, work)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_what_is_flushed_is_there_after_a_power_cut(files, acks):
    async def work(broker):
        await broker.create_topic("t", 1, {"flush.messages": "1"})
        await broker.create_topic("other", 1)
        wanted = [ProducePartition("other", 0, batch_of()), ProducePartition("t", 0, batch_of(3))]
        assert (await produce_all(broker, wanted, acks=acks) is None) == (acks == 0)
        return files.after_machine_crash(None)

    async def look(broker):
        return broker.partition("t", 0).log.log_end_offset, broker.partition("other", 0).log.log_end_offset

    left = on(files, work, crash=True)
    assert on(left, look) == (3, 0)


def test_a_client_that_has_gone_does_not_hold_back_what_it_sent(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"flush.messages": "1"})
        with busy_disk(broker) as disk:
            answer = asyncio.create_task(produce_one(broker, "t", batch_of()))
            await asyncio.sleep(0)
            answer.cancel()
            disk.set()
            await broker._flushes.close()
            return (await list_one(broker, "t", LATEST)).offset

    assert on(files, work) == 1


def test_a_commit_waits_for_the_disk_too(files):
    async def write(broker):
        await broker.create_topic("t", 1)
        await broker.coordinator_ready()
        flushed = commit(broker, "g", {("t", 0): CommittedOffset(5, -1, "", 0)})
        assert flushed is not None
        await flushed
        return files.after_machine_crash(None)

    async def look(broker):
        return broker.offsets.committed("g")[("t", 0)].offset

    config = {"log.flush.interval.messages": 1, "offsets.topic.num.partitions": 2}
    assert on(on(files, write, crash=True, config=config), look, config=config) == 5


def test_a_sync_that_fails_is_an_error_and_takes_only_its_partition_offline(files):
    async def work(broker):
        await broker.create_topic("t", 2, {"flush.messages": "1"})
        assert (await produce_one(broker, "t", batch_of())).error_code == ErrorCode.NONE
        files.fail("sync", errno.EIO, path="*/t-0/*")
        wanted = [ProducePartition("t", partition, batch_of()) for partition in (0, 1)]
        results = await produce_all(broker, wanted)
        assert [result.error_code for result in results] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        assert (await produce_one(broker, "t", batch_of())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await fetch_one(broker, "t")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await list_one(broker, "t", LATEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce_one(broker, "t", batch_of(), partition=1)).base_offset == 1

    on(files, work)


def test_a_full_disk_is_an_error_until_there_is_room(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        assert (await produce_one(broker, "t", batch_of())).error_code == ErrorCode.NONE
        files.fail("append", errno.ENOSPC, path="*/t-0/*")
        assert (await produce_one(broker, "t", batch_of())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len((await fetch_one(broker, "t")).records) == len(batch_of())
        assert (await produce_one(broker, "t", batch_of())).base_offset == 1

    on(files, work)


# -- compacted topics


def with_key(batch, key):
    """The same batch with records whose key is this one."""
    records = [Record(one.offset, one.timestamp_ms, key, one.value) for one in decode_batch(batch)]
    return encode_batch(records, codec=read_header(batch).codec)


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_refuses_records_without_a_key(files, codec):
    async def work(broker):
        await broker.create_topic("t", 1, {"cleanup.policy": "compact,delete"})
        await broker.create_topic("plain", 1)
        keyed, keyless = batch_of(3, codec=codec), with_key(batch_of(3, codec=codec), None)
        assert (await produce_one(broker, "t", keyed)).base_offset == 0
        assert (await produce_one(broker, "plain", keyless)).error_code == ErrorCode.NONE
        refused = await produce_one(broker, "t", keyless)
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert "3 of the batch's 3 records have no key" in refused.error_message
        assert [index for index, _ in refused.record_errors] == [0, 1, 2]
        assert broker.partition("t", 0).log.log_end_offset == 3

    on(files, work)


def test_a_compacted_topic_refuses_what_compaction_could_not_read(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"cleanup.policy": "compact"})
        damaged = batch_of(3)
        damaged[-1] ^= 0x40  # the number of headers of the last record
        assert (await produce_one(broker, "t", damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
        batches.pack_header(damaged, 0, read_header(damaged))
        assert (await produce_one(broker, "t", damaged)).error_code == ErrorCode.INVALID_RECORD
        not_gzip = batch_of(3)
        batches.pack_header(not_gzip, 0, read_header(not_gzip)._replace(attributes=1))
        assert (await produce_one(broker, "t", not_gzip)).error_code == ErrorCode.INVALID_RECORD
        large = batch_of(1, value=bytes(300_000), codec=1)
        assert len(large) < 1000
        assert (await produce_one(broker, "t", large)).error_code == ErrorCode.NONE
        await broker.create_topic("small", 1, {"cleanup.policy": "compact", "max.message.bytes": "10000"})
        refused = await produce_one(broker, "small", large)
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.MESSAGE_TOO_LARGE,
            "a compressed batch holds more than 160000 bytes",
        )
        assert broker.partition("t", 0).log.log_end_offset == 1
        assert broker.partition("small", 0).log.log_end_offset == 0

    on(files, work)


@contextmanager
def busy_checker():
    """The thread that looks at records does nothing until the event is set, at the latest at the end."""
    free = threading.Event()
    produce_api._checker.submit(free.wait)
    try:
        yield free
    finally:
        free.set()


LARGE = batch_of(2_000)  # takes so long that it is left to a thread


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_large_batch_of_a_compacted_topic_is_looked_at_while_others_are_answered(files):
    async def work(broker):
        await broker.create_topic("t", 2, {"cleanup.policy": "compact"})
        await broker.create_topic("plain", 1)
        wanted = [ProducePartition("t", 0, LARGE), ProducePartition("plain", 0, batch_of(3))]
        with busy_checker() as checker:
            answer = asyncio.create_task(produce_all(broker, wanted))
            await turns()
            assert not answer.done()
            assert (await produce_one(broker, "t", batch_of(), partition=1)).error_code == ErrorCode.NONE
            assert (await produce_one(broker, "plain", LARGE)).base_offset == 3  # nobody looks at its records
            assert broker.partition("t", 0).log.log_end_offset == 0
            checker.set()
            results = await answer
        assert [(one.topic, one.error_code, one.base_offset) for one in results] == [("t", 0, 0), ("plain", 0, 0)]
        assert len((await fetch_one(broker, "t")).records) == len(LARGE)
        refused = await produce_one(broker, "t", with_key(LARGE, None))
        assert (refused.error_code, len(refused.record_errors)) == (ErrorCode.INVALID_RECORD, 100)
        assert broker.partition("t", 0).log.log_end_offset == 2_000

    on(files, work)


def test_what_is_looked_at_later_is_what_was_sent_whatever_becomes_of_the_frame(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"cleanup.policy": "compact"})
        wanted = ProduceRequest(None, -1, 1000, [ProducePartition("t", 0, LARGE)])
        frame = bytearray(b"".join(produce.encode_request(wanted, 9)))
        with busy_checker() as checker:
            answer = produce_api.answer(broker, Request(9, "client", "/127.0.0.1", memoryview(frame)))
            frame[:] = bytes(len(frame))  # the connection has taken up the next one
            checker.set()
            (body,) = await answer
        assert produce.decode_response(body, 9)[0].error_code == ErrorCode.NONE

    on(files, work)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made anew"])
def test_a_topic_that_goes_while_a_batch_is_looked_at_does_not_get_it(files, again):
    async def work(broker):
        topic = await broker.create_topic("t", 1, {"cleanup.policy": "compact"})
        with busy_checker() as checker:
            answer = asyncio.create_task(produce_one(broker, "t", LARGE))
            await turns()
            await broker.delete_topic("t", topic.topic_id)
            if again:
                await broker.create_topic("t", 1)
            checker.set()
            assert (await answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if again:
            assert broker.partition("t", 0).log.log_end_offset == 0

    on(files, work)


def test_a_batch_that_was_looked_at_waits_for_the_disk_where_it_must(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"cleanup.policy": "compact", "flush.messages": "1"})
        assert (await produce_one(broker, "t", LARGE)).error_code == ErrorCode.NONE
        return files.after_machine_crash(None)

    async def look(broker):
        return broker.partition("t", 0).log.log_end_offset

    assert on(on(files, work, crash=True), look) == 2_000


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_batch_is_written_though_its_client_goes_while_it_is_looked_at(files, acks):
    async def work(broker):
        await broker.create_topic("t", 1, {"cleanup.policy": "compact"})
        with busy_checker() as checker:
            answer = asyncio.create_task(produce_all(broker, [ProducePartition("t", 0, LARGE)], acks=acks))
            await turns()
            answer.cancel()
            await turns()
            assert answer.cancelled()
            checker.set()
            assert (await produce_one(broker, "t", batch_of())).base_offset == 2_000

    on(files, work)


def test_a_stop_waits_for_the_batches_that_are_looked_at(files):
    async def write(broker):
        await broker.create_topic("t", 1, {"cleanup.policy": "compact"})
        produce_api._checker.submit(time.sleep, 0.3)
        answer = asyncio.create_task(produce_all(broker, [ProducePartition("t", 0, LARGE)], acks=0))
        await turns()
        answer.cancel()

    async def look(broker):
        return broker.partition("t", 0).log.log_end_offset

    on(files, write)
    assert on(files, look) == 2_000


def test_an_error_that_nobody_hears_closes_the_connection(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        wanted = [ProducePartition("t", 0, batch_of()), ProducePartition("nowhere", 0, batch_of())]
        with pytest.raises(Unheard, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await produce_all(broker, wanted, acks=0)
        assert broker.partition("t", 0).log.log_end_offset == 1

    on(files, work)
