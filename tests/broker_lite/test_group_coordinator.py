"""Groups in a broker: what is written and when it is told, disks that fail, clients that go, time that passes."""

import asyncio
import errno
from uuid import UUID

import pytest

from pylog.broker_lite import event_log
from pylog.broker_lite.apis import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from pylog.broker_lite.broker import Broker
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.group_coordinator import AGAIN_AFTER_MS
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.machines.timers import Now
from pylog.broker_lite.protocol.consumer_offsets import partition_of_group
from pylog.broker_lite.protocol.delete_groups import DeleteGroupsRequest
from pylog.broker_lite.protocol.describe_groups import DescribeGroupsRequest
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.heartbeat import HeartbeatRequest
from pylog.broker_lite.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pylog.broker_lite.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from pylog.broker_lite.protocol.list_groups import ListGroupsRequest
from pylog.broker_lite.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pylog.broker_lite.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pylog.broker_lite.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pylog.broker_lite.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.broker_requests import ask
from tests.support.brokers import busy_disk, commit, running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.faults

CONFIG = {"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
PATIENCE_MS = 60_000
PATIENT = CONFIG | {"group.initial.rebalance.delay.ms": PATIENCE_MS}  # who joins waits
FLUSHED = CONFIG | {"log.flush.interval.messages": 1}
SESSION_MS = 10_000
NAMES = [f"g{number}" for number in range(100)]
GROUP, BESIDE = [name for name in NAMES if partition_of_group(name, 3) == 1][:2]  # in one partition
ELSEWHERE = next(name for name in NAMES if partition_of_group(name, 3) == 2)


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


def on(files, work, **options):
    async def ready(broker):
        await broker.create_topic("t", 2)
        await broker.coordinator_ready()
        return await work(broker)

    options = {"config": CONFIG} | options
    return running([files.root / "data"], ready, files=files, clock=files.clock, **options)


def again(files, work, **options):
    options = {"config": CONFIG} | options
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


def pass_time(broker, by_ms):
    """The clock of the deadlines goes ahead, and they are looked at."""
    now = broker.coordinator.now()
    broker.coordinator.now = lambda: Now(now.timer_ms + by_ms, now.wall_ms + by_ms)
    broker.coordinator._ring()


async def join(broker, group=GROUP, *, member_id="", instance_id=None, version=3):
    """v3: no id is to be asked for first."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff")],
    )
    return await ask(broker, join_group.API, request, version)


async def sync(broker, joined, group=GROUP):
    assignments = [SyncGroupRequestAssignment(one.member_id, b"all") for one in joined.members]
    request = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=assignments
    )
    return await ask(broker, sync_group.API, request, 3)


async def member(broker, group=GROUP):
    joined = await join(broker, group)
    assert (joined.error_code, (await sync(broker, joined, group)).error_code) == (0, 0)
    return joined


async def beat(broker, joined, group=GROUP):
    request = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    return (await ask(broker, heartbeat.API, request, 3)).error_code


async def leave(broker, joined, group=GROUP):
    request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(joined.member_id)])
    response = await ask(broker, leave_group.API, request, 3)
    return response.error_code or response.members[0].error_code


async def commit_at(broker, offset, *, generation=-1, member_id="", partitions=(0,), version=8, retention_ms=-1):
    asked = [OffsetCommitRequestPartition(partition_index=one, committed_offset=offset) for one in partitions]
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic("t", partitions=asked)],
    )
    response = await ask(broker, offset_commit.API, request, version)
    return [one.error_code for one in response.topics[0].partitions]


async def committed(broker, group=GROUP):
    asked = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopic("t", partition_indexes=[0])])
    (found,) = (await ask(broker, offset_fetch.API, OffsetFetchRequest(groups=[asked]), 8)).groups
    return found.error_code or found.topics[0].partitions[0].committed_offset


async def states(broker):
    response = await ask(broker, list_groups.API, ListGroupsRequest(), 4)
    return {one.group_id: one.group_state for one in response.groups}


async def state_of(broker, group=GROUP):
    (found,) = (await ask(broker, describe_groups.API, DescribeGroupsRequest(groups=[group]), 5)).groups
    return found.error_code or found.group_state


async def started(coroutine):
    task = asyncio.create_task(coroutine)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def told(task):
    return (await asyncio.wait_for(task, 10)).error_code


# -- what is there after a crash


def test_a_group_is_back_after_a_crash_and_its_members_have_a_session(files):
    async def live(broker):
        joined = await member(broker)
        assert await commit_at(broker, 7, generation=joined.generation_id, member_id=joined.member_id) == [0]
        return joined

    async def go_on(broker):
        assert await states(broker) == {GROUP: "Stable"}
        assert await beat(broker, joined) == ErrorCode.NONE
        assert await commit_at(broker, 8, generation=joined.generation_id, member_id=joined.member_id) == [0]

    async def nobody_comes(broker):
        assert await committed(broker) == 8
        pass_time(broker, SESSION_MS - 1000)
        assert await state_of(broker) == "Stable"
        pass_time(broker, 1001)
        assert await state_of(broker) == "Empty"
        assert await committed(broker) == 8

    async def empty(broker):
        assert await states(broker) == {GROUP: "Empty"}

    joined = on(files, live, crash=True)
    again(files, go_on, crash=True)
    again(files, nobody_comes, crash=True)
    again(files, empty)


def test_one_who_leaves_and_a_group_that_is_deleted_stay_away(files):
    async def work(broker):
        joined = await member(broker)
        assert await commit_at(broker, 7, generation=joined.generation_id, member_id=joined.member_id) == [0]
        request = DeleteGroupsRequest(groups_names=[GROUP, GROUP, "nobody"])
        first = (await ask(broker, delete_groups.API, request, 2)).results
        assert await leave(broker, joined) == ErrorCode.NONE
        assert await state_of(broker) == "Empty"
        second = (await ask(broker, delete_groups.API, request, 2)).results
        return [[(one.group_id, one.error_code) for one in results] for results in (first, second)]

    async def look(broker):
        return await states(broker), await committed(broker)

    missing = ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)
    assert on(files, work, crash=True) == [
        [(GROUP, ErrorCode.NON_EMPTY_GROUP), missing],
        [(GROUP, ErrorCode.NONE), missing],
    ]
    assert again(files, look) == ({}, -1)


# -- log.flush.interval.messages: nothing is told that a power cut would take back


def test_what_waits_for_the_disk_is_told_to_nobody_before(files):
    async def work(broker):
        joined = await join(broker)
        with busy_disk(broker) as disk:
            syncs = [await started(sync(broker, joined)) for _ in range(2)]  # the second one writes nothing
            offset = await started(commit_at(broker, 7, generation=joined.generation_id, member_id=joined.member_id))
            asked = await started(committed(broker))
            assert await committed(broker, ELSEWHERE) == -1  # whose log is another
            assert await beat(broker, joined) == ErrorCode.NONE
            disk.set()
            assert [await told(one) for one in syncs] == [ErrorCode.NONE] * 2
            assert await asyncio.wait_for(offset, 10) == [ErrorCode.NONE]
            assert await asyncio.wait_for(asked, 10) == 7
        assert broker.coordinator.is_committed

    on(files, work, config=FLUSHED)


def test_a_disk_that_fails_leaves_nobody_waiting(files):
    async def work(broker):
        joined = await member(broker)
        with busy_disk(broker) as disk:
            offset = await started(commit_at(broker, 7, generation=joined.generation_id, member_id=joined.member_id))
            asked = await started(committed(broker))
            files.fail("sync", errno.EIO, path="*/__consumer_offsets-1/*")
            disk.set()
            assert await asyncio.wait_for(offset, 10) == [ErrorCode.NOT_COORDINATOR]
            assert await asyncio.wait_for(asked, 10) == ErrorCode.NOT_COORDINATOR

    on(files, work, config=FLUSHED)


# -- who may commit


def test_members_commit_for_their_generation_and_others_not_at_all(files):
    async def work(broker):
        joined = await member(broker)
        generation, member_id = joined.generation_id, joined.member_id
        assert await commit_at(broker, 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await commit_at(broker, 1, generation=generation, member_id="x") == [ErrorCode.UNKNOWN_MEMBER_ID]
        late = await commit_at(broker, 1, generation=generation - 1, member_id=member_id, partitions=(0, 5))
        assert late == [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await committed(broker) == -1
        assert await commit_at(broker, 1, generation=generation, member_id=member_id) == [ErrorCode.NONE]
        assert await committed(broker) == 1

    on(files, work)


def test_offsets_of_topics_that_are_read_are_not_deleted(files):
    async def delete(broker):
        asked = OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)])
        request = OffsetDeleteRequest(group_id=GROUP, topics=[asked])
        response = await ask(broker, offset_delete.API, request, 0)
        return response.error_code or [one.error_code for one in response.topics[0].partitions]

    async def work(broker):
        assert await delete(broker) == ErrorCode.GROUP_ID_NOT_FOUND
        joined = await member(broker)
        await commit_at(broker, 1, generation=joined.generation_id, member_id=joined.member_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete(broker) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, unknown]
        await leave(broker, joined)
        assert await delete(broker) == [ErrorCode.NONE, unknown]
        assert await committed(broker) == -1

    on(files, work)


LONG = "x" * 32_768  # newer requests can carry it, the log cannot


@pytest.mark.parametrize(
    ("named", "code"),
    [
        pytest.param({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID, id="group"),
        pytest.param({"group_instance_id": LONG[:32_731]}, ErrorCode.INVALID_REQUEST, id="instance"),
        pytest.param({"protocol_type": LONG}, ErrorCode.INVALID_REQUEST, id="protocol type"),
        pytest.param({"protocols": [JoinGroupRequestProtocol(LONG)]}, ErrorCode.INVALID_REQUEST, id="protocol"),
        pytest.param({"group_instance_id": LONG[:32_730]}, ErrorCode.NONE, id="an instance that is just short enough"),
    ],
)
def test_a_name_that_the_log_cannot_hold_is_refused(files, named, code):
    async def work(broker):
        usual = {
            "group_id": GROUP,
            "session_timeout_ms": SESSION_MS,
            "group_instance_id": "i",
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol("range")],
        }
        joined = await ask(broker, join_group.API, JoinGroupRequest(**(usual | named)), 9)
        assert joined.error_code == code
        if code == ErrorCode.NONE:
            assert (await sync(broker, joined)).error_code == code

    on(files, work)


def test_a_commit_that_the_log_cannot_hold_is_refused(files):
    async def work(broker):
        assert await commit_at(broker, 1, version=4, retention_ms=(1 << 63) - 1) == [ErrorCode.NONE]
        asked = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        request = OffsetCommitRequest(group_id=LONG, topics=[OffsetCommitRequestTopic("t", partitions=asked)])
        response = await ask(broker, offset_commit.API, request, 8)
        assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID

    on(files, work)


# -- offsets that nobody wants any more


def test_a_commit_for_a_topic_that_was_deleted_is_none_for_the_next_of_its_name(files):
    async def work(broker):
        await commit_at(broker, 4)
        known = broker.topics.by_name["t"].topic_id
        assert broker.offsets.committed(GROUP)["t", 0].topic_id == known
        commit(broker, BESIDE, {("t", 0): CommittedOffset(3, -1, "", START_MS, topic_id=UUID(int=1))})
        commit(broker, "of old", {("t", 0): CommittedOffset(2, -1, "", START_MS)})

    async def look(broker):
        return [await committed(broker, group) for group in (GROUP, BESIDE, "of old")]

    on(files, work, crash=True)
    assert again(files, look) == [4, -1, 2]


def test_offsets_expire_and_the_group_with_them(files):
    async def work(broker):
        joined = await member(broker)
        await commit_at(broker, 1, generation=joined.generation_id, member_id=joined.member_id)
        commit(broker, BESIDE, {("t", 0): CommittedOffset(3, -1, "", START_MS + 50_000)})
        files.clock.advance(61_000)
        await broker.coordinator.expire()
        assert (await committed(broker), await committed(broker, BESIDE)) == (1, 3)  # the first has a member
        await leave(broker, joined)
        files.clock.advance(59_000)
        await broker.coordinator.expire()
        assert (await committed(broker), await committed(broker, BESIDE)) == (1, -1)
        files.clock.advance(1_000)
        await broker.coordinator.expire()

    async def look(broker):
        return await states(broker), await committed(broker)

    on(files, work, crash=True, config=CONFIG | {"offsets.retention.minutes": 1})
    assert again(files, look) == ({}, -1)


def test_a_client_of_old_says_how_long_its_offsets_are_kept(files):
    async def work(broker):
        assert await commit_at(broker, 1, version=4, retention_ms=5_000) == [0]
        files.clock.advance(4_999)
        await broker.coordinator.expire()
        assert await committed(broker) == 1
        files.clock.advance(1)
        await broker.coordinator.expire()
        assert await committed(broker) == -1

    on(files, work)


# -- clients that go while they wait


def test_a_client_that_goes_while_it_joins_is_missed_like_any_other(files):
    async def work(broker):
        first = await started(join(broker))
        second = await started(join(broker))
        first.cancel()
        pass_time(broker, PATIENCE_MS)
        joined = await asyncio.wait_for(second, 10)
        assert joined.error_code == ErrorCode.NONE
        assert len(broker.groups.get(GROUP).members) == 2  # nobody knows yet
        pass_time(broker, SESSION_MS - 1)
        assert await beat(broker, joined) == ErrorCode.NONE
        pass_time(broker, 1)
        assert [*broker.groups.get(GROUP).members] == [joined.member_id]
        assert await beat(broker, joined) == ErrorCode.REBALANCE_IN_PROGRESS

    on(files, work, config=PATIENT)


def test_who_waits_when_the_broker_stops_is_told_to_look_elsewhere(files):
    async def work(broker):
        waiting = await started(join(broker))
        await broker.close()
        assert await told(waiting) == ErrorCode.NOT_COORDINATOR
        assert await committed(broker) == ErrorCode.NOT_COORDINATOR

    async def main():
        broker = Broker([files.root / "data"], BrokerConfig.parse(PATIENT), files=files, clock=files.clock)
        await broker.coordinator_ready()
        await work(broker)

    asyncio.run(main())


# -- disks


def test_an_assignment_is_told_when_it_is_on_the_disk(files):
    async def work(broker):
        joined = await join(broker)
        with busy_disk(broker) as disk:
            synced = await started(sync(broker, joined))
            disk.set()
            assert (await synced).error_code == ErrorCode.NONE
        return files.after_machine_crash(None)

    async def look(broker):
        return await states(broker)

    config = CONFIG | {"log.flush.interval.messages": 1}
    assert again(on(files, work, crash=True, config=config), look, config=config) == {GROUP: "Stable"}


def test_an_assignment_that_cannot_be_synced_is_not_told(files):
    async def work(broker):
        joined = await join(broker)
        files.fail("sync", errno.EIO, path="*/__consumer_offsets-1/*", times=None)
        assert (await sync(broker, joined)).error_code == ErrorCode.NOT_COORDINATOR
        assert await beat(broker, joined) == ErrorCode.NOT_COORDINATOR

    on(files, work, config=CONFIG | {"log.flush.interval.messages": 2})


def test_what_cannot_be_written_has_not_happened(files):
    async def work(broker):
        files.fail("append", errno.ENOSPC, path="*/__consumer_offsets-1/*")
        assert (await join(broker)).error_code == ErrorCode.NOT_COORDINATOR
        assert await states(broker) == {}
        joined = await join(broker)
        files.fail("append", errno.ENOSPC, path="*/__consumer_offsets-1/*")
        assert (await sync(broker, joined)).error_code == ErrorCode.NOT_COORDINATOR
        assert await state_of(broker) == "CompletingRebalance"
        assert (await sync(broker, joined)).error_code == ErrorCode.NONE
        files.fail("append", errno.ENOSPC, path="*/__consumer_offsets-1/*")
        assert await leave(broker, joined) == ErrorCode.NOT_COORDINATOR
        assert await beat(broker, joined) == ErrorCode.NONE

    on(files, work)


def test_a_deadline_whose_outcome_cannot_be_written_is_tried_again_but_not_at_once(files, caplog):
    async def work(broker):
        await member(broker)
        files.fail("append", errno.ENOSPC, path="*/__consumer_offsets-1/*", times=None)
        for _ in range(2):
            pass_time(broker, SESSION_MS + 1)
            assert await state_of(broker) == "Stable"
            ahead_ms = broker.coordinator._alarm.when() * 1000 - broker.coordinator.now().timer_ms
            assert ahead_ms == pytest.approx(AGAIN_AFTER_MS + 1, abs=1)
        files.heal()
        pass_time(broker, AGAIN_AFTER_MS + 1)
        assert await state_of(broker) == "Empty"

    on(files, work)
    assert caplog.text.count("stays as it is for now") == 1


def test_groups_whose_log_is_lost_are_nobodys_and_what_waits_is_told(files):
    async def work(broker):
        assert await commit_at(broker, 1) == [0]
        waiting = await started(join(broker, BESIDE))
        other = await started(join(broker, ELSEWHERE))
        files.fail("append", errno.EIO, path="*/__consumer_offsets-1/*")
        assert await commit_at(broker, 2) == [ErrorCode.NOT_COORDINATOR]
        assert await committed(broker) == ErrorCode.NOT_COORDINATOR
        assert await told(waiting) == ErrorCode.NOT_COORDINATOR
        assert (await join(broker)).error_code == ErrorCode.NOT_COORDINATOR
        assert await state_of(broker) == ErrorCode.NOT_COORDINATOR
        assert await states(broker) == {ELSEWHERE: "PreparingRebalance"}
        pass_time(broker, PATIENCE_MS)
        assert await told(other) == ErrorCode.NONE

    on(files, work, config=PATIENT)


@pytest.mark.parametrize("is_listed", [True, False], ids=["when groups are listed", "with its next deadline"])
def test_a_group_in_a_log_that_failed_unseen_is_lost(files, is_listed):
    async def work(broker):
        waiting = await started(join(broker))
        files.fail("sync", errno.EIO, path="*/__consumer_offsets-1/*", times=None)
        log = broker.partition("__consumer_offsets", 1).log
        with pytest.raises(Exception, match="__consumer_offsets-1"):
            log.flush()
        if is_listed:
            assert await states(broker) == {}
        else:
            pass_time(broker, PATIENCE_MS)
        assert await told(waiting) == ErrorCode.NOT_COORDINATOR
        assert await states(broker) == {}

    on(files, work, config=PATIENT)


def test_a_group_that_makes_no_sense_takes_its_partition_offline_and_all_of_its_groups(files):
    async def work(broker):
        await member(broker)
        await member(broker, ELSEWHERE)
        nonsense = (b"\0\2" + len(BESIDE).to_bytes(2, "big") + BESIDE.encode(), b"\0\3\0")
        broker.partition("__consumer_offsets", 1).append(event_log.batch([nonsense], START_MS))

    async def look(broker):
        assert await states(broker) == {ELSEWHERE: "Stable"}
        assert await state_of(broker) == ErrorCode.NOT_COORDINATOR

    on(files, work)
    again(files, look)
