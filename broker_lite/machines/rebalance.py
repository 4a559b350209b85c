"""One decision on one group: what a request, or a deadline that has passed, makes of it.

A rebalance has two rounds. First everybody joins: requests wait until all known members have asked again, or until the
slowest one's rebalance timeout. Then everybody asks for its assignment: requests wait until the leader, a member too,
has sent it. A generation is one such pair of rounds; what a member of an older one asks for is refused.

Every request that waits is answered: `joining` is emptied when the first round ends, which its deadline sees to, and
`syncing` when the second one does, or when a new rebalance begins.
"""

from pylog.broker_lite.machines.group import (
    NO_ASSIGNMENT,
    NO_MEMBER_ID,
    Group,
    Member,
    Parked,
    State,
    Token,
    protocols_of,
)
from pylog.broker_lite.machines.group_outcome import (
    JOIN,
    SESSION,
    SYNC,
    Answer,
    Client,
    GroupEvent,
    GroupLimits,
    TimerKey,
    refused_join,
    refused_sync,
)
from pylog.broker_lite.machines.timers import Now
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.join_group import (
    MEMBER_ID_REQUIRED_SINCE,
    SKIP_ASSIGNMENT_SINCE,
    JoinGroupRequest,
    JoinGroupResponse,
)
from pylog.broker_lite.protocol.leave_group import MemberIdentity
from pylog.broker_lite.protocol.sync_group import SyncGroupRequest, SyncGroupResponse

PENDING_MEMBERS_MAX = 10_000  # ids that one group gives out to clients that have not come back with them
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000  # Kafka's; a new member has no session yet, and may have gone while it waits


class Decision:
    """`group` is a copy: what becomes of it if `events` can be written. The rest is for the caller to do then."""

    def __init__(self, group: Group, limits: GroupLimits, now: Now) -> None:
        self.group = group.copy()
        self.events: list[GroupEvent] = []
        self.answers: list[Answer] = []
        self.deadlines_ms: dict[TimerKey, int | None] = {}
        self._limits = limits
        self._now = now

    # -- joining

    def join(self, request: JoinGroupRequest, parked: Parked, client: Client, new_member_id: str) -> None:
        group, member_id = self.group, request.member_id
        replaced = None if request.group_instance_id is None else group.static_members.get(request.group_instance_id)
        if not self._has_room_for(member_id or replaced or NO_MEMBER_ID):
            self._remove(member_id)
            self._stop_waiting()
            self.answers.append(refused_join(parked, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
        elif not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            self.answers.append(refused_join(parked, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif member_id == NO_MEMBER_ID and replaced is not None:
            self._replace_static_member(request, parked, replaced, new_member_id)
        elif member_id == NO_MEMBER_ID and request.group_instance_id is not None:
            self._add_member(request, parked, client, new_member_id)
        elif member_id == NO_MEMBER_ID and parked.version >= MEMBER_ID_REQUIRED_SINCE:
            # Who asks again after an answer was lost would else leave members behind that nobody is.
            self._await_return(new_member_id, request.session_timeout_ms)
            self.answers.append(refused_join(parked, ErrorCode.MEMBER_ID_REQUIRED, new_member_id))
        elif member_id == NO_MEMBER_ID:
            self._add_member(request, parked, client, new_member_id)
        elif member_id in group.pending and request.group_instance_id is None:
            self._add_member(request, parked, client, member_id)
        elif (fault := group.fault_of(member_id, request.group_instance_id)) != ErrorCode.NONE:
            self.answers.append(refused_join(parked, fault, member_id))
        else:
            self._join_again(request, parked)

    def _has_room_for(self, member_id: str) -> bool:
        group, room = self.group, self._limits.members_max
        match group.state:
            case State.EMPTY | State.DEAD:
                return True
            case State.PREPARING_REBALANCE:  # the first to come stay, also where there are too many from before
                return member_id in group.joining or len(group.joining) < room
            case State.COMPLETING_REBALANCE | State.STABLE:
                return member_id in group.members or len(group.members) < room

    def _await_return(self, member_id: str, session_timeout_ms: int) -> None:
        pending = self.group.pending
        while len(pending) >= PENDING_MEMBERS_MAX:
            self._remove(next(iter(pending)))
        pending[member_id] = None
        self._set(SESSION, session_timeout_ms, member_id)

    def _add_member(self, request: JoinGroupRequest, parked: Parked, client: Client, member_id: str) -> None:
        member = Member.new(member_id, client.client_id, client.host, request)
        if self.group.initial_remaining_ms is not None:
            self.group.initial_grew = True
        self.group.add(member, request.protocol_type)
        self.group.joining[member_id] = parked
        # It cannot send heartbeats before it knows its id, nor is it noticed when it goes: it is waited for this long.
        self._set(SESSION, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id)
        self._rebalance()

    def _join_again(self, request: JoinGroupRequest, parked: Parked) -> None:
        group, member = self.group, self.group.members[request.member_id]
        is_leader = group.leader == member.member_id
        is_same = member.protocols == protocols_of(request)
        match group.state:
            # The same from a member that has not got the answer: it gets it again.
            case State.COMPLETING_REBALANCE if is_same:
                self._answer_join(parked, member.member_id, tell_members=is_leader)
            # A leader that asks again has seen a change that is not in its metadata, e.g. more partitions.
            case State.STABLE if is_same and not is_leader:
                self._answer_join(parked, member.member_id, tell_members=False)
            case State.EMPTY | State.DEAD:
                self.answers.append(refused_join(parked, ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
            case _:
                self._update_member(request, parked, member)
                self._rebalance()

    def _update_member(self, request: JoinGroupRequest, parked: Parked, member: Member) -> None:
        self.group.update(member.updated(request))
        self._forget_join(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self.group.joining[member.member_id] = parked

    def _replace_static_member(self, request: JoinGroupRequest, parked: Parked, old_id: str, new_id: str) -> None:
        """Whoever still uses the old id is fenced. In a stable group all else stays as it is, if it can."""
        group, leader_before = self.group, self.group.leader
        self._forget_join(old_id, ErrorCode.FENCED_INSTANCE_ID, old_id)
        self._forget_sync(old_id, ErrorCode.FENCED_INSTANCE_ID)
        group.rename(old_id, new_id)
        self.deadlines_ms[TimerKey(group.group_id, SESSION, old_id)] = None
        self._update_member(request, parked, group.members[new_id])
        self._set(SESSION, request.session_timeout_ms, new_id)
        if group.state is not State.STABLE or group.choose_protocol() != group.protocol_name:
            # In the middle of an assignment: the leader may have been told the old id, and would leave out the new one.
            self._rebalance()
            return
        del group.joining[new_id]
        self._persist()
        is_leader = group.leader == new_id
        if parked.version >= SKIP_ASSIGNMENT_SINCE:
            self._answer_join(parked, new_id, tell_members=is_leader, skip_assignment=is_leader)
        else:  # it is told of a leader that is not itself: it would else assign anew
            self._answer_join(parked, new_id, tell_members=False, leader=leader_before)

    def _answer_join(
        self,
        parked: Parked,
        member_id: str,
        *,
        tell_members: bool,
        skip_assignment: bool = False,
        leader: str | None = None,
    ) -> None:
        group = self.group
        reply = JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader or group.leader or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=group.for_leader() if tell_members else [],
        )
        self.answers.append(Answer(parked.token, reply))

    # -- the first round

    def _rebalance(self) -> None:
        """Begin one, or, where one has begun, end its first round if nobody is missing."""
        if self.group.state is State.PREPARING_REBALANCE:
            self._stop_waiting()
        else:
            self.prepare_rebalance()

    def _stop_waiting(self) -> None:
        """For somebody who may have been the last one missing. A first rebalance waits for more members."""
        if self.group.initial_remaining_ms is None:
            self._complete_if_all_joined()

    def prepare_rebalance(self) -> None:
        group = self.group
        if group.state is State.COMPLETING_REBALANCE:
            for member in list(group.members.values()):
                group.update(member._replace(assignment=NO_ASSIGNMENT))
                if self._forget_sync(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS):
                    self._set(SESSION, member.session_timeout_ms, member.member_id)
        group.unsynced.clear()
        self._unset(SYNC)
        is_initial = group.state is State.EMPTY
        self._change_state(State.PREPARING_REBALANCE)
        if is_initial:
            delay_ms = self._limits.initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.initial_grew = False
            self._set(JOIN, delay_ms)
        elif group.all_joined:
            self._complete_join()
        else:
            self._set(JOIN, group.rebalance_timeout_ms)

    def _complete_if_all_joined(self) -> None:
        if self.group.state is State.PREPARING_REBALANCE and self.group.all_joined:
            self._complete_join()

    def _complete_join(self) -> None:
        """The next generation begins, with those that are here."""
        group = self.group
        for member in list(group.members.values()):
            if member.member_id not in group.joining and member.instance_id is None:
                self._remove(member.member_id)
        if group.members and not self._elect_leader():
            self._set(JOIN, group.rebalance_timeout_ms)  # static members, of which none came: sessions end that
            return
        self._unset(JOIN)
        group.initial_remaining_ms = None
        group.generation += 1
        group.unsynced = set(group.members)
        if not group.members:
            group.protocol_name = None
            group.look_up_subscriptions()
            self._change_state(State.EMPTY)
            self._persist()
            return
        group.protocol_name = group.choose_protocol()
        group.look_up_subscriptions()
        self._change_state(State.COMPLETING_REBALANCE)
        for member in list(group.members.values()):
            parked = group.joining.pop(member.member_id, None)
            if parked is not None:
                self._answer_join(parked, member.member_id, tell_members=member.member_id == group.leader)
            if member.is_new:
                group.update(member._replace(is_new=False))
            self._set(SESSION, member.session_timeout_ms, member.member_id)
        self._set(SYNC, group.rebalance_timeout_ms)

    def _elect_leader(self) -> bool:
        """One that is here; the present one if it can be. False: nobody is."""
        group = self.group
        if group.leader not in group.joining:
            here = next((member_id for member_id in group.members if member_id in group.joining), None)
            if here is None:
                return False
            group.leader = here
        return True

    # -- the second round

    def sync(self, request: SyncGroupRequest, token: Token) -> None:
        group, member_id = self.group, request.member_id
        fault = self._fault_of_sync(request)
        if fault != ErrorCode.NONE:
            self.answers.append(refused_sync(token, fault))
            return
        group.unsynced.discard(member_id)
        if not group.unsynced:
            self._unset(SYNC)
        if group.state is State.STABLE:
            self._answer_sync(token, group.members[member_id])
            return
        self._forget_sync(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        group.syncing[member_id] = token
        if group.leader == member_id:
            self._assign({one.member_id: one.assignment for one in request.assignments})

    def _fault_of_sync(self, request: SyncGroupRequest) -> ErrorCode:
        group = self.group
        fault = group.fault_of(request.member_id, request.group_instance_id)
        if fault != ErrorCode.NONE:
            return fault
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        for theirs, ours in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if theirs is not None and ours is not None and theirs != ours:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def _assign(self, assignments: dict[str, bytes]) -> None:
        group = self.group
        self._change_state(State.STABLE)
        for member in list(group.members.values()):
            assigned = member._replace(assignment=assignments.get(member.member_id, NO_ASSIGNMENT))
            group.update(assigned)
            if member.member_id in group.syncing:
                self._answer_sync(group.syncing.pop(member.member_id), assigned)
                self._set(SESSION, member.session_timeout_ms, member.member_id)
        self._persist()

    def _answer_sync(self, token: Token, member: Member) -> None:
        group = self.group
        reply = SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )
        self.answers.append(Answer(token, reply))

    # -- leaving

    def leave(self, members: list[MemberIdentity]) -> list[ErrorCode]:
        count_before = len(self.group.members)
        codes = [self._leave(one.member_id, one.group_instance_id) for one in members]
        if len(self.group.members) < count_before:
            self._rebalance()
        elif ErrorCode.NONE in codes:  # only such as had not joined yet
            self._stop_waiting()
        return codes

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        group = self.group
        if member_id == NO_MEMBER_ID and instance_id is not None:  # an admin, who knows the instance only
            member_id = group.static_members.get(instance_id, NO_MEMBER_ID)
        if member_id not in group.pending:
            fault = group.fault_of(member_id, instance_id)
            if fault != ErrorCode.NONE:
                return fault
        self._remove(member_id)
        return ErrorCode.NONE

    def _remove(self, member_id: str) -> None:
        self._forget_join(member_id, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)  # if it is there it comes anew
        self._forget_sync(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.group.remove(member_id)
        self.deadlines_ms[TimerKey(self.group.group_id, SESSION, member_id)] = None

    def _forget_join(self, member_id: str, code: ErrorCode, answered_id: str) -> None:
        parked = self.group.joining.pop(member_id, None)
        if parked is not None:
            self.answers.append(refused_join(parked, code, answered_id))

    def _forget_sync(self, member_id: str, code: ErrorCode) -> bool:
        is_waiting = member_id in self.group.syncing
        if is_waiting:
            self.answers.append(refused_sync(self.group.syncing.pop(member_id), code))
        return is_waiting

    # -- deadlines

    def pass_deadline(self, key: TimerKey) -> None:
        if key in self.deadlines_ms:  # an earlier one has changed it
            return
        self.deadlines_ms[key] = None
        if key.kind == SESSION:
            self._end_session(key.member_id)
        elif key.kind == JOIN:
            self._end_wait_for_joins()
        else:
            self._end_wait_for_syncs()

    def _end_session(self, member_id: str) -> None:
        group = self.group
        if member_id in group.pending:
            self._remove(member_id)
            self._complete_if_all_joined()
        elif (member := group.members.get(member_id)) is not None:
            # Whose request waits here is alive, and gets a new session with the answer.
            if not member.is_new and (member_id in group.joining or member_id in group.syncing):
                return
            self._remove(member_id)
            if group.state is State.PREPARING_REBALANCE:
                self._complete_if_all_joined()
            else:
                self._rebalance()

    def _end_wait_for_joins(self) -> None:
        group = self.group
        if group.state is not State.PREPARING_REBALANCE:
            return
        remaining_ms = group.initial_remaining_ms
        if remaining_ms and group.initial_grew:
            group.initial_grew = False
            group.initial_remaining_ms = max(remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = min(self._limits.initial_rebalance_delay_ms, remaining_ms)
            self._set(JOIN, group.initial_delay_ms)
        else:
            self._complete_join()

    def _end_wait_for_syncs(self) -> None:
        group = self.group
        if group.state in (State.COMPLETING_REBALANCE, State.STABLE) and group.unsynced:
            for member_id in list(group.unsynced):
                self._remove(member_id)
            self.prepare_rebalance()

    # -- tools

    def _change_state(self, state: State) -> None:
        self.group.state = state
        self.group.since_ms = self._now.wall_ms

    def _persist(self) -> None:
        self.events.append(GroupEvent(self.group.group_id, self.group.record()))

    def _set(self, kind: str, timeout_ms: int, member_id: str = "") -> None:
        self.deadlines_ms[TimerKey(self.group.group_id, kind, member_id)] = self._now.timer_ms + timeout_ms

    def _unset(self, kind: str) -> None:
        self.deadlines_ms[TimerKey(self.group.group_id, kind)] = None
