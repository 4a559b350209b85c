"""A log that cannot be opened, or fails, takes its partition offline. The broker starts, and all others go on."""

import errno

import pytest

from pylog.broker_lite.apis import find_coordinator, metadata, offset_commit, offset_fetch
from pylog.broker_lite.broker import Broker
from pylog.broker_lite.config import BrokerConfig, ConfigError
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.protocol.consumer_offsets import partition_of_group
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.find_coordinator import FindCoordinatorRequest
from pylog.broker_lite.protocol.metadata import MetadataRequest, MetadataRequestTopic
from pylog.broker_lite.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pylog.broker_lite.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pylog.broker_lite.protocol.wire import ZERO_UUID
from pylog.storage.errors import LogOffline
from pylog.storage.records import Record, encode_batch
from tests.support.broker_requests import ask, fetch_one, list_one, produce_one
from tests.support.brokers import commit, running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.faults

CONFIG = {"offsets.topic.num.partitions": 3}
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


def on(files, work, **options):
    options = {"config": CONFIG} | options
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


async def three_partitions(broker):
    await broker.create_topic("t", 3)
    for partition in range(3):
        await produce_one(broker, "t", batch_of(2), partition=partition)


async def codes_of(broker, partition):
    return [
        (await produce_one(broker, "t", batch_of(), partition=partition)).error_code,
        (await fetch_one(broker, "t", partition=partition)).error_code,
        (await list_one(broker, "t", -1, partition=partition)).error_code,
        (await list_one(broker, "t", START_MS, partition=partition)).error_code,
    ]


async def described(broker, name="t"):
    """By partition: error, leader, offline replicas."""
    response = await ask(broker, metadata.API, MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    return [(one.error_code, one.leader_id, one.offline_replicas) for one in response.topics[0].partitions]


def break_disk(files, partition):
    files.fail("sizes_in", errno.EIO, path=f"*/t-{partition}", times=None)


def test_a_log_that_cannot_be_opened_takes_its_partition_offline(files, caplog):
    async def look(broker):
        assert await codes_of(broker, 1) == [STORAGE_ERROR] * 4
        assert await codes_of(broker, 0) == await codes_of(broker, 2) == [ErrorCode.NONE] * 4
        assert await described(broker) == [
            (ErrorCode.NONE, 1, []),
            (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1]),
            (ErrorCode.NONE, 1, []),
        ]
        refused = await produce_one(broker, "t", batch_of(), partition=1)
        assert "Partition 1 of topic 't' is offline" in refused.error_message
        with pytest.raises(RequestError) as unknown:
            broker.partition("t", 3)
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    on(files, three_partitions)
    break_disk(files, 1)
    on(files, look)
    assert "t-1 is offline" in caplog.text


def test_so_does_one_that_lost_what_was_on_the_disk_and_nothing_of_it_is_cut(files, caplog):
    async def write_and_flush(broker):
        await three_partitions(broker)
        await broker.upkeep.flush()
        broker.partition("t", 1).log.flush()
        await broker.upkeep.checkpoint()

    async def look(broker):
        assert await codes_of(broker, 1) == [STORAGE_ERROR] * 4
        assert await codes_of(broker, 0) == [ErrorCode.NONE] * 4

    path = files.root / "data" / "t-1" / f"{0:020d}.log"
    on(files, write_and_flush, crash=True)
    damaged = files.read(path)[:-9]
    files.replace(path, damaged, durable=True)
    on(files, look)
    assert files.read(path) == damaged
    assert f"t-1 is offline: {path}: damaged at byte" in caplog.text


def test_what_was_offline_is_back_after_a_restart_with_a_disk_that_works(files):
    async def end(broker):
        return (await list_one(broker, "t", -1, partition=1)).offset

    async def nothing(broker):
        pass

    on(files, three_partitions)
    break_disk(files, 1)
    on(files, nothing)
    files.heal()
    assert on(files, end) == 2


def test_a_log_that_fails_later_is_offline_from_then_on(files):
    async def work(broker):
        await three_partitions(broker)
        files.fail("append", errno.EIO, path="*/t-1/*")
        assert await codes_of(broker, 1) == [STORAGE_ERROR] * 4
        assert await codes_of(broker, 0) == [ErrorCode.NONE] * 4
        assert (await described(broker))[1] == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])

    on(files, work)


def test_an_offline_topic_can_be_deleted_and_made_anew(files):
    async def anew(broker):
        await broker.delete_topic("t", ZERO_UUID)
        files.heal()
        await broker.create_topic("t", 3)
        assert await codes_of(broker, 1) == [ErrorCode.NONE] * 4

    async def end(broker):
        return (await list_one(broker, "t", -1, partition=1)).offset

    on(files, three_partitions)
    break_disk(files, 1)
    on(files, anew, crash=True)
    assert on(files, end) == 1


def test_commits_for_an_offline_partition_are_taken(files):
    async def commit(broker):
        await broker.coordinator_ready()
        return (await commit_one(broker, "g", partition=1)), (await commit_one(broker, "g", partition=3))

    on(files, three_partitions)
    break_disk(files, 1)
    assert on(files, commit) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# -- the broker's own logs


async def commit_one(broker, group, *, offset=5, partition=0):
    asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic("t", partitions=[asked])])
    response = await ask(broker, offset_commit.API, request, 8)
    return response.topics[0].partitions[0].error_code


async def committed(broker, group, version=8):
    asked = [OffsetFetchRequestTopic("t", partition_indexes=[0])]
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)])
        answered = (await ask(broker, offset_fetch.API, request, version)).groups[0]
        return answered.error_code or answered.topics[0].partitions[0].committed_offset
    response = await ask(broker, offset_fetch.API, OffsetFetchRequest(group_id=group, topics=asked), version)
    found = response.topics[0].partitions[0]
    assert version == 1 or response.error_code == found.error_code
    return found.error_code or found.committed_offset


def groups_apart():
    """A group of partition 1 of `__consumer_offsets`, and one of another."""
    names = [f"g{number}" for number in range(100)]
    return (
        next(name for name in names if partition_of_group(name, 3) == 1),
        next(name for name in names if partition_of_group(name, 3) != 1),
    )


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_groups_whose_commits_cannot_be_read_have_no_coordinator(files, version):
    broken, whole = groups_apart()

    async def commit(broker):
        await broker.create_topic("t", 1)
        await broker.coordinator_ready()
        for group in (broken, whole):
            assert await commit_one(broker, group) == ErrorCode.NONE

    async def look(broker):
        assert await committed(broker, whole, version) == 5
        assert await committed(broker, broken, version) == ErrorCode.NOT_COORDINATOR
        assert await commit_one(broker, whole, offset=6) == ErrorCode.NONE
        assert await commit_one(broker, broken, offset=6) == ErrorCode.NOT_COORDINATOR
        request = FindCoordinatorRequest(coordinator_keys=[whole, broken])
        found = (await ask(broker, find_coordinator.API, request, 4)).coordinators
        assert [(one.key, one.error_code, one.node_id) for one in found] == [
            (whole, ErrorCode.NONE, 1),
            (broken, ErrorCode.COORDINATOR_NOT_AVAILABLE, -1),
        ]
        old = await ask(broker, find_coordinator.API, FindCoordinatorRequest(key=broken), 3)
        assert (old.error_code, old.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        await broker.delete_topic("t", ZERO_UUID)  # though its commits cannot be taken back

    on(files, commit)
    files.fail("read_at", errno.EIO, path="*/__consumer_offsets-1/*.log", times=None)
    on(files, look)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(b"", b"", id="no version"),
        pytest.param(b"\0\1\0\5g", b"", id="a key that ends early"),
        pytest.param(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3\0", id="a value that ends early"),
        pytest.param(b"\0\1\0\1\xff\0\1t\0\0\0\0", None, id="a name that is no text"),
    ],
)
def test_commits_that_make_no_sense_take_their_groups_offline(files, key, value):
    broken, whole = groups_apart()

    async def write(broker):
        await broker.create_topic("t", 1)
        await broker.coordinator_ready()
        for group in (broken, whole):
            assert await commit_one(broker, group) == ErrorCode.NONE
        nonsense = encode_batch([Record(0, START_MS, key, value)])
        broker.partition("__consumer_offsets", 1).append(nonsense)

    async def look(broker):
        assert await committed(broker, whole) == 5
        assert await committed(broker, broken) == ErrorCode.NOT_COORDINATOR

    on(files, write)
    on(files, look)


def test_a_coordinator_whose_disk_fails_is_gone(files):
    broken, whole = groups_apart()

    async def work(broker):
        await broker.create_topic("t", 1)
        await broker.coordinator_ready()
        assert await commit_one(broker, broken) == ErrorCode.NONE
        files.fail("append", errno.EIO, path="*/__consumer_offsets-1/*")
        assert await commit_one(broker, broken) == ErrorCode.NOT_COORDINATOR
        assert await commit_one(broker, whole) == ErrorCode.NONE
        assert await committed(broker, broken) == ErrorCode.NOT_COORDINATOR

    on(files, work)


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        pytest.param("sizes_in", "*/__cluster_metadata-0", id="it cannot be opened"),
        pytest.param("read_at", "*/__cluster_metadata-0/*.log", id="it cannot be read"),
    ],
)
def test_without_its_metadata_a_broker_does_not_start_and_says_why(files, operation, path):
    on(files, three_partitions)
    files.fail(operation, errno.EIO, path=path, times=None)
    with pytest.raises(LogOffline, match="__cluster_metadata-0"):
        Broker([files.root / "data"], BrokerConfig.parse(CONFIG), files=files, clock=files.clock)
    files.heal()
    on(files, codes_of_all)


async def codes_of_all(broker):
    for partition in range(3):
        assert await codes_of(broker, partition) == [ErrorCode.NONE] * 4


def test_overrides_that_no_longer_fit_the_brokers_options_are_told_with_the_topic(files):
    async def create(broker):
        await broker.create_topic("t", 1, {"min.compaction.lag.ms": "5000"})

    on(files, create)
    with pytest.raises(ConfigError, match=r"topic 't': min\.compaction\.lag\.ms=5000: must not be more than"):
        on(files, create, config={"log.cleaner.max.compaction.lag.ms": 1000})


# -- several data directories


def in_two(files, work, **options):
    directories = [files.root / "first", files.root / "second"]
    return running(directories, work, files=files, clock=files.clock, config=CONFIG, **options)


def test_partitions_are_spread_over_the_directories_and_found_again(files):
    async def look(broker):
        for partition in range(3):
            assert await codes_of(broker, partition) == [ErrorCode.NONE] * 4

    in_two(files, three_partitions)
    names = {name for name in files.tree() if name.count("/") == 1 and "-" in name}
    assert "first/__cluster_metadata-0" in names
    assert {name.split("/")[0] for name in names if "/t-" in name} == {"first", "second"}
    in_two(files, look, crash=True)
    in_two(files, look)


def test_a_directory_that_cannot_be_read_takes_its_own_partitions_offline(files):
    async def look(broker):
        described_now = await described(broker)
        lost = [index for index in range(3) if f"second/t-{index}" in files.tree()]
        assert lost
        for index in range(3):
            expected = STORAGE_ERROR if index in lost else ErrorCode.NONE
            assert await codes_of(broker, index) == [expected] * 4
            assert described_now[index][1] == (-1 if index in lost else 1)
        await broker.create_topic("new", 2)
        assert (await produce_one(broker, "new", batch_of())).base_offset == 0

    async def look_again(broker):
        for index in range(3):
            assert (await codes_of(broker, index)) == [ErrorCode.NONE] * 4

    in_two(files, three_partitions)
    files.fail("lock", errno.EIO, path="*/second/*", times=None)
    files.fail("directories_in", errno.EIO, path="*/second", times=None)
    in_two(files, look)
    files.heal()
    in_two(files, look_again)


def test_the_directory_with_the_metadata_is_needed(files):
    in_two(files, three_partitions)
    files.fail("lock", errno.EIO, path="*/first/*", times=None)
    with pytest.raises(LogOffline, match="without it no topic is known"):
        in_two(files, three_partitions)


def test_commits_outlive_a_directory(files):
    async def write(broker):
        await broker.create_topic("t", 1)
        await broker.coordinator_ready()
        for group in groups_apart():
            commit(broker, group, {("t", 0): CommittedOffset(7, -1, "", 0)})

    async def look(broker):
        return [await committed(broker, group) for group in groups_apart()]

    in_two(files, write, crash=True)
    assert in_two(files, look) == [7, 7]
