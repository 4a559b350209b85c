"""One group and its members, as values: a decision works on a copy, and the copy takes the group's place or is dropped.

What `record` writes is back after a restart. The rest is not: who waits for an answer, who was given an id and has not
joined with it yet, who has not fetched its assignment.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from pylog.broker_lite.protocol import consumer_protocol
from pylog.broker_lite.protocol.consumer_offsets import GroupMetadataValue, MemberMetadata
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.join_group import JoinGroupRequest, JoinGroupResponseMember
from pylog.broker_lite.protocol.wire import MalformedFrame

NO_MEMBER_ID = ""
NO_ASSIGNMENT = b""
UNKNOWN_SINCE_MS = -1  # a record of before Kafka 2.1 does not tell it

Token = object  # the caller's, of a request that waits: given back with its answer, never looked at


class State(StrEnum):
    """As Kafka's tools show them. A group that is not there is Dead."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # members join; their requests wait
    COMPLETING_REBALANCE = "CompletingRebalance"  # the leader assigns; the others' requests wait
    STABLE = "Stable"
    DEAD = "Dead"


class Parked(NamedTuple):
    """A JoinGroup that waits for the others."""

    token: Token
    version: int


class Member(NamedTuple):
    member_id: str
    instance_id: str | None  # of a static member, which may leave and come back as the same
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, the one that it likes best first
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False  # it has not been in a generation yet

    @classmethod
    def new(cls, member_id: str, client_id: str, client_host: str, request: JoinGroupRequest) -> "Member":
        member = cls(member_id, request.group_instance_id, client_id, client_host, 0, 0, (), is_new=True)
        return member.updated(request)

    def updated(self, request: JoinGroupRequest) -> "Member":
        """By what it says of itself when it joins, again."""
        rebalance_timeout_ms = request.rebalance_timeout_ms
        return self._replace(
            rebalance_timeout_ms=request.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols_of(request),
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")


def protocols_of(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    """A name that comes twice counts once."""
    metadata: dict[str, bytes] = {}
    for protocol in request.protocols:
        metadata.setdefault(protocol.name, protocol.metadata)
    return tuple(metadata.items())


@dataclass(slots=True)
class Group:
    group_id: str
    state: State = State.EMPTY
    since_ms: int = UNKNOWN_SINCE_MS  # when it came into its state
    generation: int = 0
    protocol_type: str | None = None  # None: a "simple" group, which has offsets and never had members
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    subscribed: frozenset[str] | None = None  # by the members of this generation; None: that is not known

    # Follows from the members.
    static_members: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    supporters: dict[str, int] = field(default_factory=dict)  # protocol name -> how many members can do it

    # Not in the log.
    pending: dict[str, None] = field(default_factory=dict)  # ids that were given out, in that order, and not used yet
    joining: dict[str, Parked] = field(default_factory=dict)  # by member id
    syncing: dict[str, Token] = field(default_factory=dict)  # by member id, of a SyncGroup that waits for the leader
    unsynced: set[str] = field(default_factory=set)  # members that have not asked for their assignment
    initial_delay_ms: int = 0
    initial_remaining_ms: int | None = None  # of a first rebalance, which waits for more members; else None
    initial_grew: bool = False  # one joined since that wait began

    def copy(self) -> "Group":
        return replace(
            self,
            members=dict(self.members),
            static_members=dict(self.static_members),
            supporters=dict(self.supporters),
            pending=dict(self.pending),
            joining=dict(self.joining),
            syncing=dict(self.syncing),
            unsynced=set(self.unsynced),
        )

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        self._count(member, 1)

    def update(self, member: Member) -> None:
        self._count(self.members[member.member_id], -1)
        self.members[member.member_id] = member
        self._count(member, 1)

    def remove(self, member_id: str) -> None:
        """Whoever it is: a member, one that was only given an id, or nobody."""
        self.pending.pop(member_id, None)
        self.unsynced.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, old_id: str, new_id: str) -> None:
        """A static member came back under a new id: same place, same everything else. It has a session from now on."""
        member = self.members[old_id]._replace(member_id=new_id, is_new=False)
        assert member.instance_id is not None
        self.members = {new_id if key == old_id else key: one for key, one in self.members.items()}
        self.members[new_id] = member
        self.static_members[member.instance_id] = new_id
        self.unsynced.discard(old_id)
        if self.leader == old_id:
            self.leader = new_id

    def _count(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            self.supporters[name] = self.supporters.get(name, 0) + by
            if not self.supporters[name]:
                del self.supporters[name]

    def fault_of(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether it is a member; a static one, the one that has the instance id now."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is not None and holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member has its time."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Protocols

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member that can do these would have one in common with everybody here."""
        if self.state is State.EMPTY:
            return protocol_type != "" and names != []
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self.supporters.get(one, 0) == everybody for one in names)

    def choose_protocol(self) -> str:
        """Of those that all can do, the one that most like best."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if self.supporters[name] == len(self.members))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == consumer_protocol.PROTOCOL_TYPE

    def is_subscribed(self, topic: str) -> bool:
        """Of consumers that do not tell, it is presumed."""
        return self.uses_consumer_protocol if self.subscribed is None else topic in self.subscribed

    def look_up_subscriptions(self) -> None:
        self.subscribed = self._subscriptions()

    def _subscriptions(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol or (self.members and self.protocol_name is None):
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(consumer_protocol.decode_subscription(member.metadata(self.protocol_name)).topics)
            except MalformedFrame:  # it is theirs to understand, not ours
                return None
        return frozenset(topics)

    def for_leader(self) -> list[JoinGroupResponseMember]:
        """What the leader is to know of everybody, to assign."""
        return [
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    # Records

    def record(self) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=self.since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    @classmethod
    def from_record(cls, group_id: str, record: GroupMetadataValue) -> "Group":
        """What its members read is looked up later, once the whole log was read: most records are not the last."""
        group = cls(
            group_id,
            State.STABLE if record.members else State.EMPTY,
            record.current_state_timestamp,
            record.generation,
            record.protocol_type or None,
            record.protocol,
        )
        for one in record.members:
            member = Member(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                one.rebalance_timeout if one.rebalance_timeout > 0 else one.session_timeout,  # v0 has none
                one.session_timeout,
                ((record.protocol or "", one.subscription),),
                one.assignment,
            )
            group.add(member, record.protocol_type)
        if record.leader in group.members:
            group.leader = record.leader
        if not group.members:
            group.look_up_subscriptions()
        return group
