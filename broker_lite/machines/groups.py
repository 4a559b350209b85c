"""Groups: who is in them, what they were assigned, how far they have read. Their log is `__consumer_offsets`.

Nothing here waits, looks at a clock or writes. Each call decides on the present state, changes nothing, and returns an
outcome. The caller's duties, in this order, and without a pause between 1 and 3:

1. Call `join`, `sync`, `heartbeat`, `leave`, `commit`, `delete_offsets` or `delete` for a request; `tick` when
   `next_deadline_ms` has come; `expire` for each of `ids()` every `offsets.retention.check.interval.ms`;
   `topic_deleted` for a topic. Where there are many outcomes, each is dealt with by itself, as follows.
2. Append `outcome.events`, if there are any, to the group's partition of `__consumer_offsets`, in one batch
   (`event_log.record` encodes one). If that fails, drop the outcome and answer its request with an error: nothing has
   happened, and a deadline that had passed is still due (do not try again at once).
3. `apply(outcome)`. An outcome of a state that is no longer there is refused by an assertion.
4. When the events are committed, send `outcome.reply`, and give each of `outcome.answers` to the request of its token.
   A `join` or a `sync` is answered by such an answer alone, in its own outcome or in a later one. The token is the
   caller's, e.g. the future that the request awaits; one whose client has gone is answered all the same.
5. Wake up at `next_deadline_ms`, on the clock of `Now.timer_ms`; it may have changed with every `apply`.

At the start: `replay` every event of the log (`event_log.event` decodes one), then `loaded`, whose outcomes are dealt
with as above. Where a partition of the log is lost: `unload` the groups that are kept there.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from uuid import uuid4

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines import expiry, group_views
from pylog.broker_lite.machines.group import NO_MEMBER_ID, Group, Parked, State, Token
from pylog.broker_lite.machines.group_outcome import (
    JOIN,
    SESSION,
    SYNC,
    Answer,
    Client,
    Event,
    GroupEvent,
    GroupLimits,
    GroupOutcome,
    TimerKey,
    refused_join,
    refused_sync,
)
from pylog.broker_lite.machines.offsets import CommittedOffset, OffsetEvent, Offsets, Place
from pylog.broker_lite.machines.outcome import Reply
from pylog.broker_lite.machines.rebalance import Decision
from pylog.broker_lite.machines.timers import Now, Timers
from pylog.broker_lite.protocol.describe_groups import DescribedGroup
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from pylog.broker_lite.protocol.join_group import JoinGroupRequest
from pylog.broker_lite.protocol.leave_group import (
    MANY_MEMBERS_SINCE,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from pylog.broker_lite.protocol.list_groups import ListedGroup
from pylog.broker_lite.protocol.offset_commit import GROUP_NOT_FOUND_SINCE, OffsetCommitRequest
from pylog.broker_lite.protocol.sync_group import PROTOCOL_REQUIRED_SINCE, SyncGroupRequest

EXPIRED_AT_ONCE_MAX = 1_000  # offsets that one outcome forgets: its events are one batch, which has a limit


class Groups:
    def __init__(self, offsets: Offsets, limits: GroupLimits, unique: Callable[[], str] = lambda: str(uuid4())) -> None:
        self.rebalances = 0  # generations that began, in all groups
        self._offsets = offsets
        self._limits = limits
        self._unique = unique
        self._groups: dict[str, Group] = {}
        self._timers: Timers[TimerKey] = Timers()

    # -- members

    def join(
        self, request: JoinGroupRequest, version: int, client: Client, token: Token, now: Now
    ) -> GroupOutcome[None]:
        group_id, parked = request.group_id, Parked(token, version)
        before = self._groups.get(group_id)
        fault = self._fault_of_join(request, before)
        if fault != ErrorCode.NONE:
            return self._unchanged(group_id, None, refused_join(parked, fault, request.member_id))
        decision = Decision(before or Group(group_id, since_ms=now.wall_ms), self._limits, now)
        created = [] if before is not None else [GroupEvent(group_id, decision.group.record())]
        prefix = request.group_instance_id if request.group_instance_id is not None else client.client_id
        decision.join(request, parked, client, f"{prefix}-{self._unique()}")
        if not decision.group.members and not decision.group.pending and before is None:
            # Refused: that makes no group.
            return self._unchanged(group_id, None, *decision.answers)
        return self._decided(before, decision, None, created)

    def _fault_of_join(self, request: JoinGroupRequest, group: Group | None) -> ErrorCode:
        if request.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        limits = self._limits
        if not limits.session_timeout_ms_min <= request.session_timeout_ms <= limits.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group is None and request.member_id != NO_MEMBER_ID:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def sync(self, request: SyncGroupRequest, version: int, token: Token, now: Now) -> GroupOutcome[None]:
        group = self._groups.get(request.group_id)
        if version >= PROTOCOL_REQUIRED_SINCE and (request.protocol_type is None or request.protocol_name is None):
            return self._unchanged(request.group_id, None, refused_sync(token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            return self._unchanged(request.group_id, None, refused_sync(token, code))
        decision = Decision(group, self._limits, now)
        decision.sync(request, token)
        return self._decided(group, decision, None)

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> GroupOutcome[HeartbeatResponse]:
        group_id, group = request.group_id, self._groups.get(request.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
            return self._unchanged(group_id, HeartbeatResponse(error_code=code))
        fault = group.fault_of(request.member_id, request.group_instance_id)
        if fault == ErrorCode.NONE and request.generation_id != group.generation:
            fault = ErrorCode.ILLEGAL_GENERATION
        if fault != ErrorCode.NONE:
            return self._unchanged(group_id, HeartbeatResponse(error_code=fault))
        is_rebalancing = group.state is State.PREPARING_REBALANCE
        reply = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE)
        return GroupOutcome([], reply, group_id, group, group, [], _session(group, request.member_id, now))

    def leave(self, request: LeaveGroupRequest, version: int, now: Now) -> GroupOutcome[LeaveGroupResponse]:
        group_id, group = request.group_id, self._groups.get(request.group_id)
        if group_id == "":
            return self._unchanged(group_id, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        many = version >= MANY_MEMBERS_SINCE
        members = request.members if many else [MemberIdentity(request.member_id)]
        if group is None:
            return self._unchanged(group_id, _left(members, [ErrorCode.UNKNOWN_MEMBER_ID] * len(members), many))
        decision = Decision(group, self._limits, now)
        codes = decision.leave(members)
        return self._decided(group, decision, _left(members, codes, many))

    # -- offsets

    def commit(
        self, request: OffsetCommitRequest, version: int, commits: Mapping[Place, CommittedOffset], now: Now
    ) -> GroupOutcome[dict[Place, ErrorCode]]:
        """`commits` are those of the request that are for partitions which exist."""
        group_id, group = request.group_id, self._groups.get(request.group_id)
        self._check_commit(request, version, group)
        outcome = self._offsets.decide(group_id, commits)
        deadlines_ms: Mapping[TimerKey, int | None] = {}
        if group is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            deadlines_ms = _session(group, request.member_id, now)
        after = group if group is not None or not outcome.events else Group(group_id)
        return GroupOutcome([*outcome.events], outcome.reply, group_id, group, after, [], deadlines_ms)

    def _check_commit(self, request: OffsetCommitRequest, version: int, group: Group | None) -> None:
        """Members commit for their generation; others, who have none, where there are no members."""
        is_anybody = request.generation_id < 0
        if is_anybody and (group is None or group.state is State.EMPTY):
            return
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND if version >= GROUP_NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
            raise RequestError(code, f"Group '{request.group_id}' does not exist.")
        fault = group.fault_of(request.member_id, request.group_instance_id)
        if fault != ErrorCode.NONE:
            raise RequestError(fault, f"'{request.member_id}' is not a member of group '{group.group_id}'.")
        if request.generation_id != group.generation:
            raise RequestError(
                ErrorCode.ILLEGAL_GENERATION, f"Group '{group.group_id}' is in generation {group.generation}."
            )
        if group.state is State.COMPLETING_REBALANCE:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS, f"Group '{group.group_id}' is rebalancing.")

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> GroupOutcome[dict[Place, ErrorCode]]:
        """`places` are partitions that exist."""
        if group_id == "":
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
        group = self._existing(group_id)
        if group.state is not State.EMPTY and not group.uses_consumer_protocol:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"Group '{group_id}' has members.")
        reply: dict[Place, ErrorCode] = {}
        gone: list[Place] = []
        for place in places:
            is_read = group.is_subscribed(place[0])
            reply[place] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
            if not is_read:
                gone.append(place)
        return GroupOutcome([*self._offsets.tombstones(group_id, gone)], reply, group_id, group, group)

    def topic_deleted(self, topic: str) -> list[GroupOutcome[None]]:
        """Its commits go, so that a topic made anew under the same name begins without any."""
        return [
            GroupOutcome([*events], None, group_id, self._groups.get(group_id), self._groups.get(group_id))
            for group_id, events in self._offsets.topic_deleted(topic).items()
        ]

    def expire(self, group_id: str, now: Now) -> Iterator[GroupOutcome[None]]:
        """Offsets that have not been used for `offsets.retention.minutes`; the group, if it has nobody and nothing.

        Each outcome is applied before the next is asked for: where there are many offsets, it goes on from there."""
        while (group := self._groups.get(group_id)) is not None:
            count_before = len(self._offsets.committed(group_id))
            expired = list(
                islice(expiry.expired(group, self._offsets.committed(group_id), self._limits, now), EXPIRED_AT_ONCE_MAX)
            )
            events: list[Event] = [*self._offsets.tombstones(group_id, expired)]
            if len(expired) == count_before and group.state is State.EMPTY and not group.pending:
                yield self._gone(group, events)
                return
            if not expired:
                return
            yield GroupOutcome(events, None, group_id, group, group)
            if len(self._offsets.committed(group_id)) >= count_before:
                return  # it was not applied

    # -- looking at groups

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        return group_views.describe(group_id, self._groups.get(group_id), version)

    def listed(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        return group_views.listed(self._groups.values(), states, types)

    def ids(self) -> list[str]:
        return list(self._groups)

    def delete(self, group_id: str) -> GroupOutcome[None]:
        group = self._existing(group_id)
        if group.state is not State.EMPTY:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"Group '{group_id}' has members.")
        return self._gone(group, [*self._offsets.tombstones(group_id, list(self._offsets.committed(group_id)))])

    def _gone(self, group: Group, events: list[Event]) -> GroupOutcome[None]:
        sessions = {TimerKey(group.group_id, SESSION, member_id): None for member_id in group.pending}
        events.append(GroupEvent(group.group_id, None))
        return GroupOutcome(events, None, group.group_id, group, None, [], sessions)

    def _existing(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    # -- time

    @property
    def next_deadline_ms(self) -> int | None:
        return self._timers.next_ms

    def tick(self, now: Now) -> list[GroupOutcome[None]]:
        """What has become of groups whose deadlines have passed."""
        due: dict[str, list[TimerKey]] = {}
        for key in self._timers.due(now.timer_ms):
            due.setdefault(key.group_id, []).append(key)
        return [self._pass_deadlines(group_id, keys, now) for group_id, keys in due.items()]

    def _pass_deadlines(self, group_id: str, keys: list[TimerKey], now: Now) -> GroupOutcome[None]:
        group = self._groups.get(group_id)
        if group is None:
            return GroupOutcome([], None, group_id, None, None, [], dict.fromkeys(keys))
        decision = Decision(group, self._limits, now)
        for key in keys:
            decision.pass_deadline(key)
        return self._decided(group, decision, None)

    # -- changes

    def apply(self, outcome: GroupOutcome[Reply]) -> None:
        group_id, after = outcome.group_id, outcome.after
        assert self._groups.get(group_id) is outcome.before, f"group '{group_id}' has changed since this was decided"
        for event in outcome.events:
            if isinstance(event, OffsetEvent):
                self._offsets.replay(event)
        if after is not None:  # it is what its event would make of it, and what is not in the log besides
            self._groups[group_id] = after
            self.rebalances += after.generation - (outcome.before.generation if outcome.before is not None else 0)
        else:
            self._groups.pop(group_id, None)
        for key, deadline_ms in outcome.deadlines_ms.items():
            self._timers.set(key, deadline_ms)

    def replay(self, event: Event) -> None:
        if isinstance(event, OffsetEvent):
            self._offsets.replay(event)
            if event.value is not None and event.key.group not in self._groups:
                self._groups[event.key.group] = Group(event.key.group)
        elif event.value is not None:
            self._groups[event.group_id] = Group.from_record(event.group_id, event.value)
        else:
            self._groups.pop(event.group_id, None)
            if self._offsets.committed(event.group_id):
                self._groups[event.group_id] = Group(event.group_id)

    def loaded(self, now: Now) -> list[GroupOutcome[None]]:
        """After the log was replayed. Members get new sessions: whether they are still there will show."""
        outcomes = []
        for group in self._groups.values():
            if group.members:
                decision = Decision(group, self._limits, now)
                decision.group.look_up_subscriptions()
                for member_id in group.members:
                    decision.deadlines_ms.update(_session(group, member_id, now))
                if len(group.members) > self._limits.members_max:  # it was lowered: those who come first may stay
                    decision.prepare_rebalance()
                outcomes.append(self._decided(group, decision, None))
        return outcomes

    def unload(self, group_ids: Iterable[str]) -> list[Answer]:
        """Forget these groups, whose log is lost, or all when the broker stops: what waits is to ask elsewhere."""
        answers: list[Answer] = []
        for group_id in list(group_ids):
            self._offsets.unload(group_id)
            group = self._groups.pop(group_id, None)
            if group is None:
                continue
            for member_id, parked in group.joining.items():
                answers.append(refused_join(parked, ErrorCode.NOT_COORDINATOR, member_id))
            answers += [refused_sync(token, ErrorCode.NOT_COORDINATOR) for token in group.syncing.values()]
            for member_id in (*group.members, *group.pending):
                self._timers.set(TimerKey(group_id, SESSION, member_id), None)
            for kind in (JOIN, SYNC):
                self._timers.set(TimerKey(group_id, kind), None)
        return answers

    def get(self, group_id: str) -> Group | None:
        """To be looked at only."""
        return self._groups.get(group_id)

    def _decided(
        self, before: Group | None, decision: Decision, reply: Reply, events_before: Sequence[Event] = ()
    ) -> GroupOutcome[Reply]:
        group = decision.group
        events: list[Event] = [*events_before, *decision.events]
        return GroupOutcome(events, reply, group.group_id, before, group, decision.answers, decision.deadlines_ms)

    def _unchanged(self, group_id: str, reply: Reply, *answers: Answer) -> GroupOutcome[Reply]:
        group = self._groups.get(group_id)
        return GroupOutcome([], reply, group_id, group, group, [*answers])


def _session(group: Group, member_id: str, now: Now) -> dict[TimerKey, int | None]:
    deadline_ms = now.timer_ms + group.members[member_id].session_timeout_ms
    return {TimerKey(group.group_id, SESSION, member_id): deadline_ms}


def _left(members: Sequence[MemberIdentity], codes: Sequence[ErrorCode], many: bool) -> LeaveGroupResponse:
    if not many:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(one.member_id, one.group_instance_id, code) for one, code in zip(members, codes, strict=True)
        ]
    )
