"""Requests about partitions: what is deleted stays deleted, epochs end, times are looked up, and all is described."""

import asyncio
import errno
import threading

import pytest

from pylog.broker_lite import cold
from pylog.broker_lite.apis import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    metadata,
    offset_for_leader_epoch,
)
from pylog.broker_lite.protocol import fetch as fetch_messages
from pylog.broker_lite.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pylog.broker_lite.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pylog.broker_lite.protocol.describe_log_dirs import DescribeLogDirsRequest
from pylog.broker_lite.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from pylog.broker_lite.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from pylog.broker_lite.protocol.metadata import MetadataRequest, MetadataRequestTopic
from pylog.broker_lite.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pylog.storage.batch import walk
from tests.support.broker_requests import answer_to, ask, fetch_one, list_one, produce_one
from tests.support.brokers import running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles

LATEST, EARLIEST, LATEST_TIME = -1, -2, -3
SMALL_SEGMENTS = {"segment.bytes": "1048576"}


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


def on(files, work, **options):
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


# -- deleting records


async def delete(broker, *wanted, topic="t"):
    """Of (partition, offset): the low watermark of each, or its error."""
    partitions = [DeleteRecordsPartition(*one) for one in wanted]
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, partitions)], 1000)
    answered = (await ask(broker, delete_records.API, request, 2)).topics[0].partitions
    return [ErrorCode(one.error_code) if one.error_code else one.low_watermark for one in answered]


@pytest.mark.parametrize("crash", [False, True])
def test_deleted_records_stay_deleted(files, crash):
    async def work(broker):
        await broker.create_topic("t", 2)
        for partition in (0, 1):
            await produce_one(broker, "t", batch_of(10), partition=partition)
        assert await delete(broker, (0, 4), (1, -1)) == [4, 10]
        assert (await fetch_one(broker, "t", 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        return files.after_machine_crash(None) if crash else files

    async def look(broker):
        found = [(await list_one(broker, "t", EARLIEST, partition=index)).offset for index in (0, 1)]
        assert (await produce_one(broker, "t", batch_of(), partition=1)).base_offset == 10
        return found

    assert on(on(files, work, crash=crash), look) == [4, 10]


def test_segments_that_are_deleted_whole_go(files):
    async def work(broker):
        await broker.create_topic("t", 1, SMALL_SEGMENTS)
        log = broker.partition("t", 0).log
        for _ in range(4):
            await produce_one(broker, "t", batch_of(value=bytes(900_000)))
        assert len(log.segments()) == 4
        assert await delete(broker, (0, 2)) == [2]
        assert [one.base_offset for one in log.segments()] == [2, 3]
        assert await delete(broker, (0, 1)) == [2]

    on(files, work)


def test_what_cannot_be_stored_is_not_said_to_be_deleted(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of(10))
        files.fail("write_at", errno.EIO, path="*/log-start-offset-checkpoint*")
        assert await delete(broker, (0, 4)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert await delete(broker, (0, 4)) == [4]

    on(files, work)


def test_the_brokers_own_records_are_not_deleted(files):
    async def work(broker):
        await broker.coordinator_ready()
        assert await delete(broker, (0, -1), topic="__consumer_offsets") == [ErrorCode.INVALID_TOPIC_EXCEPTION]

    on(files, work)


# -- epochs


@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        pytest.param(0, (0, 6), id="the leader's own"),
        pytest.param(3, (2, 3), id="one that was skipped"),
        pytest.param(2, (2, 3), id="one that has ended"),
        pytest.param(9, (-1, -1), id="one that is not known"),
        pytest.param(-1, (-1, -1), id="none"),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(files, epoch, found):
    async def work(broker):
        await broker.create_topic("t", 1)
        log = broker.partition("t", 0).log
        log.append(batch_of(3), 2)
        log.append(batch_of(3), 5)
        asked = OffsetForLeaderPartition(0, -1, epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [asked])])
        (answered,) = (await ask(broker, offset_for_leader_epoch.API, request, 4)).topics[0].partitions
        assert (answered.error_code, answered.leader_epoch, answered.end_offset) == (ErrorCode.NONE, *found)

    on(files, work)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "code", "tags"),
    [
        pytest.param(3, 2, ErrorCode.NONE, "", id="as in the log"),
        pytest.param(4, 2, ErrorCode.NONE, "01000d00000002000000000000000300", id="more of an epoch than there is"),
        pytest.param(6, 5, ErrorCode.NONE, "", id="the newest epoch"),
        pytest.param(6, 4, ErrorCode.NONE, "01000d00000002000000000000000300", id="an epoch that was skipped"),
        pytest.param(6, 7, ErrorCode.OFFSET_OUT_OF_RANGE, "", id="an epoch that is not known"),
    ],
)
def test_a_reader_that_has_something_else_is_told_where_it_begins(files, offset, last_epoch, code, tags):
    async def work(broker):
        await broker.create_topic("t", 1)
        log = broker.partition("t", 0).log
        log.append(batch_of(3), 2)
        log.append(batch_of(3), 5)
        log.advance_high_watermark(6)
        wanted = [FetchPartition("t", 0, offset, 1 << 20, -1, -1, last_epoch)]
        request = fetch_messages.encode_request(FetchRequest(0, 1, 1 << 20, 0, 0, -1, wanted), 12)
        body = await answer_to(broker, fetch.API, request, 12)
        (found,) = fetch_messages.decode_response(body, 12).partitions
        assert found.error_code == code
        assert bytes(found.records) == b"" or not tags
        assert body.endswith(bytes.fromhex(tags or "00") + b"\0\0")

    on(files, work)


async def epoch_of(broker, topic="t"):
    request = MetadataRequest([MetadataRequestTopic(name=topic)])
    return (await ask(broker, metadata.API, request, 12)).topics[0].partitions[0].leader_epoch


async def end_of(broker, epoch):
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, epoch)])])
    (found,) = (await ask(broker, offset_for_leader_epoch.API, request, 4)).topics[0].partitions
    return found.leader_epoch, found.end_offset


def test_after_a_crash_another_leader_goes_on_and_a_reader_can_tell_what_was_lost(files):
    async def write(broker):
        await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of(10))
        broker.partition("t", 0).log.flush()
        await produce_one(broker, "t", batch_of(10))  # the power cut takes these
        assert await epoch_of(broker) == 0
        return files.after_machine_crash(None)

    async def go_on(broker):
        assert await epoch_of(broker) == 1
        assert await end_of(broker, 0) == (0, 10)
        assert (await produce_one(broker, "t", batch_of(20))).base_offset == 10
        assert await end_of(broker, 0) == (0, 10)  # not 20, as the reader thinks
        assert await end_of(broker, 1) == (1, 30)
        assert [header.leader_epoch for _, header in walk((await fetch_one(broker, "t")).records)] == [0, 1]
        found = [(await list_one(broker, "t", at)).leader_epoch for at in (EARLIEST, LATEST)]
        assert found == [0, 1]
        await broker.create_topic("new", 1)
        assert await epoch_of(broker, "new") == 0

    async def after_a_stop(broker):
        return await epoch_of(broker), await epoch_of(broker, "new")

    left = on(files, write, crash=True)
    on(left, go_on)
    assert on(left, after_a_stop, crash=True) == (1, 0)  # nothing was lost
    assert on(left.after_machine_crash(None), after_a_stop) == (2, 1)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_who_knows_an_older_leader_is_told_of_the_newer_one(files, epoch):
    async def write(broker):
        await broker.create_topic("t", 1)

    async def ask_for(broker):
        wanted = [FetchPartition("t", 0, 0, 1 << 20, epoch)]
        request = fetch_messages.encode_request(FetchRequest(0, 1, 1 << 20, 0, 0, -1, wanted), 12)
        body = await answer_to(broker, fetch.API, request, 12)
        return fetch_messages.decode_response(body, 12).partitions[0].error_code, body

    on(files, write, crash=True)
    code, body = on(files, ask_for)
    wanted = {0: ErrorCode.FENCED_LEADER_EPOCH, 1: ErrorCode.NONE, 2: ErrorCode.UNKNOWN_LEADER_EPOCH}
    assert code == wanted[epoch]
    assert body.endswith(bytes.fromhex("010109 00000001 00000001 00 0000")) == (epoch == 0)


def test_epochs_are_begun_on_a_full_disk_too(files):
    async def write(broker):
        await broker.create_topic("t", 1)

    on(files, write, crash=True)
    files.fail("append", errno.ENOSPC, path="*/__cluster_metadata-0/*")
    assert on(files, epoch_of) == 1


# -- times


@pytest.mark.parametrize("timestamp", [START_MS + 1, LATEST_TIME])
def test_a_look_up_by_time_keeps_nobody_waiting(files, timestamp):
    async def work(broker):
        await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of(3, codec=4))
        free = threading.Event()
        for _ in range(cold._THREADS):
            cold.waited(free.wait)
        try:
            look_up = asyncio.create_task(list_one(broker, "t", timestamp))
            assert (await produce_one(broker, "t", batch_of(timestamp_ms=START_MS))).base_offset == 3
            assert not look_up.done()
        finally:
            free.set()
        found = await look_up
        assert (found.error_code, found.offset) == (ErrorCode.NONE, 1 if timestamp > 0 else 2)

    on(files, work)


def test_a_look_up_by_time_goes_on_though_its_segments_go(files):
    async def work(broker):
        await broker.create_topic("t", 1, SMALL_SEGMENTS)
        for late in range(3):
            await produce_one(broker, "t", batch_of(value=bytes(900_000), timestamp_ms=START_MS + late))
        free = threading.Event()
        for _ in range(cold._THREADS):
            cold.waited(free.wait)
        try:
            look_up = asyncio.create_task(list_one(broker, "t", START_MS))
            await asyncio.sleep(0)
            assert await delete(broker, (0, 2)) == [2]
        finally:
            free.set()
        assert (await look_up).offset == 2

    on(files, work)


# -- descriptions


def test_directories_are_described_with_their_logs_and_their_room(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("not a directory")

    async def write(broker):
        await broker.create_topic("t", 3)
        await produce_one(broker, "t", batch_of(5), partition=1)

    async def look(broker):
        return (await ask(broker, describe_log_dirs.API, DescribeLogDirsRequest(None), 5)).results

    good = [tmp_path / "a", tmp_path / "b"]
    running(good, write)
    results = running([*good, broken], look)
    by_path = {result.log_dir: result for result in results}
    assert set(by_path) == {str(tmp_path / name) for name in ("a", "b", "broken")}
    offline = by_path[str(broken)]
    assert (offline.error_code, offline.topics, offline.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)
    online = [result for result in results if result is not offline]
    assert all(0 <= result.usable_bytes <= result.total_bytes for result in online)
    sizes = {
        one.partition_index: one.partition_size
        for result in online
        for topic in result.topics
        for one in topic.partitions
    }
    assert sizes == {0: 0, 1: len(batch_of(5)), 2: 0}
    assert all(topic.name == "t" for result in online for topic in result.topics)


def test_a_log_stays_in_its_directory(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("not a directory")
    good = [tmp_path / "a", tmp_path / "b"]

    async def write(broker):
        await broker.create_topic("t", 1)
        return broker.partitions["t", 0].log.directory.parent

    async def move(broker):
        codes = {}
        for path in (*good, broken, tmp_path / "nowhere"):
            asked = AlterReplicaLogDirsRequest([AlterReplicaLogDir(str(path), [AlterReplicaLogDirTopic("t", [0])])])
            (result,) = (await ask(broker, alter_replica_log_dirs.API, asked, 2)).results
            codes[path] = result.partitions[0].error_code
        return codes

    home = running(good, write)
    (other,) = (path for path in good if path != home)
    assert running([*good, broken], move) == {
        home: ErrorCode.NONE,
        other: ErrorCode.POLICY_VIOLATION,
        broken: ErrorCode.KAFKA_STORAGE_ERROR,
        tmp_path / "nowhere": ErrorCode.LOG_DIR_NOT_FOUND,
    }


def test_producers_are_described(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of(5, producer_id=7, producer_epoch=3))
        request = DescribeProducersRequest([DescribeProducersTopic("t", [0, 1])])
        found, missing = (await ask(broker, describe_producers.API, request, 0)).topics[0].partitions
        (producer,) = found.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 4)
        assert (producer.last_timestamp, producer.current_txn_start_offset) == (START_MS + 4, -1)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert missing.error_message is not None

    on(files, work)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 2000])
def test_a_cursor_goes_through_all_partitions(files, limit):
    async def work(broker):
        wanted = []
        for name, count in (("a", 3), ("b", 1), ("c", 4)):
            await broker.create_topic(name, count)
            wanted += [(name, index) for index in range(count)]
        found, cursor, rounds = [], None, 0
        while rounds == 0 or cursor is not None:
            request = DescribeTopicPartitionsRequest([], limit, cursor)
            answer = await ask(broker, describe_topic_partitions.API, request, 0)
            found += [(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions]
            cursor, rounds = answer.next_cursor, rounds + 1
        assert found == wanted
        assert rounds <= 8

    on(files, work)
