"""What transcripts do not show: the bargain with the caller, limits, and records of other times."""

import pytest

from pylog.broker_lite import event_log
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines import rebalance
from pylog.broker_lite.machines.group import Group, State
from pylog.broker_lite.machines.group_outcome import Client, GroupEvent, GroupLimits, GroupOutcome
from pylog.broker_lite.machines.groups import EXPIRED_AT_ONCE_MAX, Groups
from pylog.broker_lite.machines.offsets import CommittedOffset, OffsetEvent, OffsetKey, Offsets
from pylog.broker_lite.machines.timers import Now
from pylog.broker_lite.protocol import consumer_offsets
from pylog.broker_lite.protocol.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.heartbeat import HeartbeatRequest
from pylog.broker_lite.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pylog.broker_lite.protocol.offset_commit import OffsetCommitRequest
from pylog.broker_lite.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pylog.storage.records import Record

NOW = Now(1_000, 1_700_000_000_000)
CLIENT = Client("c", "/h")
RANGE = [JoinGroupRequestProtocol("range", b"")]


def groups(**limits: int) -> Groups:
    ids = iter(range(1, 100_000))
    chosen = {"initial_rebalance_delay_ms": 0, **limits}
    return Groups(Offsets(4096), GroupLimits(**chosen), lambda: str(next(ids)))


def join(machine: Groups, token: str, member_id: str = "", version: int = 3, **more: object) -> GroupOutcome[None]:
    request = JoinGroupRequest("g", 10_000, 60_000, member_id, None, "consumer", RANGE)
    for name, value in more.items():
        setattr(request, name, value)
    return machine.join(request, version, CLIENT, token, NOW)


def tick(machine: Groups, at_ms: int) -> list[GroupOutcome[None]]:
    outcomes = machine.tick(Now(at_ms, NOW.wall_ms + at_ms - NOW.timer_ms))
    for outcome in outcomes:
        machine.apply(outcome)
    return outcomes


def stable(machine: Groups) -> str:
    """One member, `a`, which has an assignment; its id."""
    machine.apply(join(machine, "join"))
    ((joined,),) = [outcome.answers for outcome in tick(machine, NOW.timer_ms)]
    member_id: str = joined.reply.member_id  # type: ignore[union-attr]
    request = SyncGroupRequest("g", 1, member_id, None, None, None, [SyncGroupRequestAssignment(member_id, b"x")])
    machine.apply(machine.sync(request, 4, "sync", NOW))
    return member_id


def test_an_outcome_that_is_dropped_has_not_happened() -> None:
    machine = groups()
    assert join(machine, "a").events
    assert machine.get("g") is None
    assert machine.next_deadline_ms is None
    member_id = stable(machine)
    before = machine.get("g")
    for outcome in (join(machine, "b"), join(machine, "c", member_id)):
        assert outcome.after is not None
        assert outcome.after.state is not State.STABLE
        assert machine.get("g") is before
    assert before is not None
    assert before.state is State.STABLE


def test_a_deadline_whose_outcome_was_dropped_is_still_due() -> None:
    machine = groups()
    stable(machine)
    end = Now(NOW.timer_ms + 10_000, NOW.wall_ms + 10_000)
    (dropped,) = machine.tick(end)
    assert [type(event) for event in dropped.events] == [GroupEvent]
    assert machine.next_deadline_ms == end.timer_ms
    (again,) = machine.tick(end)
    assert again.events == dropped.events
    machine.apply(again)
    assert machine.next_deadline_ms is None
    assert machine.tick(end) == []


def test_an_outcome_of_another_state_is_refused() -> None:
    machine = groups()
    first, second = join(machine, "a"), join(machine, "b")
    machine.apply(first)
    with pytest.raises(AssertionError, match="has changed"):
        machine.apply(second)


def test_what_waits_is_sent_elsewhere_when_the_log_is_lost() -> None:
    machine = groups()
    member_id = stable(machine)
    machine.apply(join(machine, "b"))
    commit = OffsetCommitRequest("g", 1, member_id)
    machine.apply(machine.commit(commit, 9, {("t", 0): CommittedOffset(1, -1, "", 0)}, NOW))
    answers = machine.unload(["g", "nowhere"])
    assert [(answer.token, answer.reply.error_code) for answer in answers] == [("b", ErrorCode.NOT_COORDINATOR)]
    assert machine.get("g") is None
    assert machine.next_deadline_ms is None
    assert machine._offsets.committed("g") == {}
    beat = HeartbeatRequest("g", 1, member_id)
    assert machine.heartbeat(beat, NOW).reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_ids_that_are_asked_for_and_not_used_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "PENDING_MEMBERS_MAX", 3)
    machine = groups()
    given = []
    for number in range(5):
        outcome = join(machine, str(number), version=4)
        machine.apply(outcome)
        given.append(outcome.answers[0].reply.member_id)  # type: ignore[union-attr]
    group = machine.get("g")
    assert group is not None
    assert list(group.pending) == given[2:]
    assert len(machine._timers) == 3
    (refused,) = join(machine, "old", given[0]).answers
    assert refused.reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert join(machine, "new", given[4]).answers == []


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_refusal_has_no_null_where_the_version_knows_none(version: int, name: str | None) -> None:
    (answer,) = join(groups(), "a", "unknown", version).answers
    assert answer.reply.protocol_name == name


def test_all_expired_offsets_go_a_batch_at_a_time() -> None:
    machine = groups(offsets_retention_ms=0)
    count = 2 * EXPIRED_AT_ONCE_MAX + 10
    for partition in range(count):
        machine.replay(OffsetEvent(OffsetKey("g", "t", partition), CommittedOffset(1, -1, "", 0)))
    sizes = []
    for outcome in machine.expire("g", NOW):
        machine.apply(outcome)
        sizes.append(len(outcome.events))
    assert sizes == [EXPIRED_AT_ONCE_MAX, EXPIRED_AT_ONCE_MAX, 10 + 1]
    assert machine.ids() == []


def test_expiry_that_cannot_be_written_ends() -> None:
    machine = groups(offsets_retention_ms=0)
    for partition in range(EXPIRED_AT_ONCE_MAX + 10):
        machine.replay(OffsetEvent(OffsetKey("g", "t", partition), CommittedOffset(1, -1, "", 0)))
    assert len(list(machine.expire("g", NOW))) == 1
    assert len(list(machine.expire("nowhere", NOW))) == 0


def test_a_tombstone_of_a_group_leaves_offsets_that_were_committed_all_the_same() -> None:
    machine = groups()
    machine.replay(GroupEvent("g", GroupMetadataValue("consumer", 4)))
    machine.replay(OffsetEvent(OffsetKey("g", "t", 0), CommittedOffset(1, -1, "", 0)))
    machine.replay(GroupEvent("g", None))
    group = machine.get("g")
    assert group is not None
    assert group.protocol_type is None
    machine.replay(OffsetEvent(OffsetKey("g", "t", 0), None))
    machine.replay(GroupEvent("g", None))
    assert machine.get("g") is None


@pytest.mark.parametrize("version", range(5))
def test_groups_that_older_brokers_wrote_are_read(version: int) -> None:
    member = MemberMetadata("m", "i" if version >= 3 else None, "c", "/h", 60_000, 10_000, b"s", b"a")
    value = GroupMetadataValue("consumer", 7, "range", "m", 123, [member])
    record = Record(
        0, 0, consumer_offsets.encode_key(GroupMetadataKey("g")), consumer_offsets.encode_value(value, version)
    )
    event = event_log.event(record)
    assert isinstance(event, GroupEvent)
    assert event.value is not None
    group = Group.from_record("g", event.value)
    assert (group.state, group.generation, group.leader) == (State.STABLE, 7, "m")
    assert group.since_ms == (123 if version >= 2 else -1)
    assert group.members["m"].rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)
    assert group.members["m"].instance_id == ("i" if version >= 3 else None)


def test_a_record_whose_leader_is_nobody_gets_one() -> None:
    members = [MemberMetadata(name, None, "c", "/h", 1, 1, b"", b"") for name in ("m", "n")]
    group = Group.from_record("g", GroupMetadataValue("consumer", 7, "range", "gone", 123, members))
    assert group.leader == "m"


def test_offsets_of_a_group_that_does_not_tell_when_it_became_empty_are_kept_from_their_commit_on() -> None:
    machine = groups(offsets_retention_ms=1_000)
    machine.replay(GroupEvent("g", GroupMetadataValue("consumer", 4, current_state_timestamp=-1)))
    old, new = CommittedOffset(1, -1, "", NOW.wall_ms - 1_000), CommittedOffset(1, -1, "", NOW.wall_ms - 999)
    machine.replay(OffsetEvent(OffsetKey("g", "t", 0), old))
    machine.replay(OffsetEvent(OffsetKey("g", "t", 1), new))
    (outcome,) = machine.expire("g", NOW)
    assert outcome.events == [OffsetEvent(OffsetKey("g", "t", 0), None)]


def test_members_that_do_not_tell_what_they_read_lose_nothing() -> None:
    machine = groups(offsets_retention_ms=0)
    stable(machine)  # its metadata is empty
    machine.replay(OffsetEvent(OffsetKey("g", "t", 0), CommittedOffset(1, -1, "", 0)))
    assert list(machine.expire("g", NOW)) == []
    outcome = machine.delete_offsets("g", [("t", 0)])
    assert outcome.reply == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert outcome.events == []


def test_a_group_that_is_not_empty_is_not_deleted() -> None:
    machine = groups()
    stable(machine)
    with pytest.raises(RequestError) as refused:
        machine.delete("g")
    assert refused.value.code == ErrorCode.NON_EMPTY_GROUP


def test_an_offset_that_says_how_long_it_is_kept_is_written_in_the_version_that_can() -> None:
    event = OffsetEvent(OffsetKey("g", "t", 0), CommittedOffset(5, -1, "m", 100, 200))
    key, value = event_log.record(event)
    assert value is not None
    assert value[:2] == b"\x00\x01"
    assert event_log.event(Record(0, 0, key, value)) == event


def test_rebalances_are_counted() -> None:
    machine = groups()
    member_id = stable(machine)
    assert machine.rebalances == 1
    machine.apply(join(machine, "again", member_id))
    assert machine.rebalances == 2
