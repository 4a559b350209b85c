"""What is asked of groups from outside, odd things too, is answered as a real Kafka answers it, in every version.

What members do, and what becomes of them, is compared by transcripts."""

from collections.abc import Iterator
from typing import Any

import pytest

from pylog.broker_lite.protocol import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    sync_group,
)
from pylog.broker_lite.protocol.delete_groups import DeleteGroupsRequest
from pylog.broker_lite.protocol.describe_groups import DescribeGroupsRequest
from pylog.broker_lite.protocol.find_coordinator import FindCoordinatorRequest
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
from pylog.broker_lite.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.beside_kafka import Side, two_sides
from tests.support.wire_requests import ask

CONFIG = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
TOPICS = {"t": 3, "u": 1}
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"  # to t
LONG_SESSION_MS = 1_800_000


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    """Each with a group that has a member, one that only commits, and one that has neither."""
    with two_sides(TOPICS, CONFIG) as both:
        for side in both:
            _commit(side, "commits")
            _join(side, "stable", "static")
            _leave(side, _join(side, "empty", "gone"))
        yield both


def _commit(side: Side, group: str) -> None:
    partitions = [OffsetCommitRequestPartition(index, 5) for index in range(3)]
    topics = [OffsetCommitRequestTopic("t", partitions=partitions)]
    answer = ask(side.servers, offset_commit.SPEC, OffsetCommitRequest(group, topics=topics), 8)
    assert [one.error_code for one in answer.topics[0].partitions] == [0, 0, 0]


def _join(side: Side, group: str, instance_id: str) -> MemberIdentity:
    protocols = [JoinGroupRequestProtocol("range", SUBSCRIPTION)]
    asked = JoinGroupRequest(group, LONG_SESSION_MS, LONG_SESSION_MS, "", instance_id, "consumer", protocols)
    joined = ask(side.servers, join_group.SPEC, asked, 5)
    given = [SyncGroupRequestAssignment(joined.member_id, b"assignment")]
    synced = SyncGroupRequest(group, joined.generation_id, joined.member_id, instance_id, assignments=given)
    assert (joined.error_code, ask(side.servers, sync_group.SPEC, synced, 3).error_code) == (0, 0)
    side.named[joined.member_id] = f"<member of {group}>"
    return MemberIdentity(joined.member_id, instance_id)


def _leave(side: Side, member: MemberIdentity) -> None:
    assert ask(side.servers, leave_group.SPEC, LeaveGroupRequest("empty", members=[member]), 4).error_code == 0


def places(name: str, *partitions: int) -> OffsetDeleteRequestTopic:
    return OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(one) for one in partitions])


REQUESTS: dict[str, tuple[Any, Any, int]] = {  # spec, request, first version
    "describe all kinds": (
        describe_groups.SPEC,
        DescribeGroupsRequest(["stable", "commits", "empty", "nobody", "", "stable"]),
        0,
    ),
    "describe nothing": (describe_groups.SPEC, DescribeGroupsRequest([]), 0),
    "describe with operations": (describe_groups.SPEC, DescribeGroupsRequest(["stable", "nobody"], True), 3),
    "list": (list_groups.SPEC, ListGroupsRequest(), 0),
    "list the stable ones": (list_groups.SPEC, ListGroupsRequest(["Stable"]), 4),
    "list in small letters": (list_groups.SPEC, ListGroupsRequest(["stable", "EMPTY"]), 4),
    "list states that there are not": (list_groups.SPEC, ListGroupsRequest(["Sleeping"]), 4),
    "list classic ones": (list_groups.SPEC, ListGroupsRequest([], ["classic"]), 5),
    "list consumer ones": (list_groups.SPEC, ListGroupsRequest([], ["consumer"]), 5),
    "list types that there are not": (list_groups.SPEC, ListGroupsRequest([], ["odd"]), 5),
    "delete what may not go": (delete_groups.SPEC, DeleteGroupsRequest(["stable", "nobody", ""]), 0),
    "delete nothing": (delete_groups.SPEC, DeleteGroupsRequest([]), 0),
    "delete offsets of nobody": (offset_delete.SPEC, OffsetDeleteRequest("nobody", [places("t", 0)]), 0),
    "delete offsets without a name": (offset_delete.SPEC, OffsetDeleteRequest("", [places("t", 0)]), 0),
    "delete offsets that are read": (
        offset_delete.SPEC,
        OffsetDeleteRequest("stable", [places("t", 0), places("u", 0)]),
        0,
    ),
    "delete offsets that are not there": (
        offset_delete.SPEC,
        OffsetDeleteRequest("commits", [places("u", 0), places("none", 1), places("t", 9)]),
        0,
    ),
    "delete no offsets": (offset_delete.SPEC, OffsetDeleteRequest("commits", []), 0),
    "a beat of nobody": (heartbeat.SPEC, HeartbeatRequest("nobody", 1, "m"), 0),
    "a beat without a group": (heartbeat.SPEC, HeartbeatRequest("", 1, "m"), 0),
    "a beat of a stranger": (heartbeat.SPEC, HeartbeatRequest("stable", 1, "m"), 0),
    "a beat of another instance": (heartbeat.SPEC, HeartbeatRequest("stable", 1, "m", "static"), 3),
    "a beat of an unknown instance": (heartbeat.SPEC, HeartbeatRequest("stable", 1, "m", "odd"), 3),
    "one leaves nobody": (leave_group.SPEC, LeaveGroupRequest("nobody", "m", [MemberIdentity("m")]), 0),
    "one leaves without a group": (leave_group.SPEC, LeaveGroupRequest("", "m", [MemberIdentity("m")]), 0),
    "a stranger leaves": (leave_group.SPEC, LeaveGroupRequest("stable", "m", [MemberIdentity("m")]), 0),
    "nobody leaves": (leave_group.SPEC, LeaveGroupRequest("stable", "m", []), 3),
    "another instance leaves": (
        leave_group.SPEC,
        LeaveGroupRequest("stable", "", [MemberIdentity("m", "static"), MemberIdentity("", "odd")]),
        3,
    ),
    "a sync of nobody": (sync_group.SPEC, SyncGroupRequest("nobody", 1, "m", None, "consumer", "range"), 0),
    "a sync without a group": (sync_group.SPEC, SyncGroupRequest("", 1, "m", None, "consumer", "range"), 0),
    "a sync of a stranger": (sync_group.SPEC, SyncGroupRequest("stable", 1, "m", None, "consumer", "range"), 0),
    "a join without a group": (join_group.SPEC, JoinGroupRequest("", 10_000, 10_000, "", None, "consumer"), 0),
    "a join without protocols": (join_group.SPEC, JoinGroupRequest("new", 10_000, 10_000, "", None, "consumer"), 0),
    "a join without a type": (
        join_group.SPEC,
        JoinGroupRequest("new", 10_000, 10_000, "", None, "", [JoinGroupRequestProtocol("range", b"")]),
        0,
    ),
    "a join for too short": (
        join_group.SPEC,
        JoinGroupRequest("new", 1, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]),
        0,
    ),
    "a join of a stranger": (
        join_group.SPEC,
        JoinGroupRequest("new", 10_000, 10_000, "m", None, "consumer", [JoinGroupRequestProtocol("range", b"")]),
        0,
    ),
    "a join with another protocol": (
        join_group.SPEC,
        JoinGroupRequest("stable", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("odd", b"")]),
        0,
    ),
    "a join of another instance": (
        join_group.SPEC,
        JoinGroupRequest("stable", 10_000, 10_000, "m", "static", "consumer", [JoinGroupRequestProtocol("range", b"")]),
        5,
    ),
    "find a group's coordinator": (find_coordinator.SPEC, FindCoordinatorRequest("g", 0, ["g", "", "h", "g"]), 0),
    "find without a name": (find_coordinator.SPEC, FindCoordinatorRequest("", 0, [""]), 0),
    "find nothing": (find_coordinator.SPEC, FindCoordinatorRequest("", 0, []), 4),
    "find what there is not": (find_coordinator.SPEC, FindCoordinatorRequest("g", 9, ["g"]), 1),
}
CASES = [
    pytest.param(spec, request, version, id=f"{name}, v{version}")
    for name, (spec, request, first) in REQUESTS.items()
    for version in range(max(first, spec.version_min), spec.version_max + 1)
]


@pytest.mark.parametrize(("spec", "request_", "version"), CASES)
def test_it_is_answered_as_kafka_answers_it(sides: list[Side], spec: Any, request_: Any, version: int) -> None:
    answers = []
    for side in sides:
        answer = ask(side.servers, spec, request_, version)
        if isinstance(answer, list_groups.ListGroupsResponse):  # Kafka has them in no order
            answer.groups.sort(key=lambda group: group.group_id)
        if isinstance(answer, delete_groups.DeleteGroupsResponse):
            answer.results.sort(key=lambda result: result.group_id)
        if isinstance(answer, offset_delete.OffsetDeleteResponse):
            answer.topics.sort(key=lambda topic: topic.name)
        if isinstance(answer, find_coordinator.FindCoordinatorResponse):
            _without_words(answer)
        answers.append(side.plain(answer))
    assert answers[0] == answers[1]


def _without_words(answer: find_coordinator.FindCoordinatorResponse) -> None:
    """Of what is refused: ours say more."""
    for one in (answer, *answer.coordinators):
        if one.error_code:
            one.error_message = None
