"""What groups give out: events for the log, answers for requests that wait, deadlines for the caller's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from pylog.broker_lite.machines.group import Group, Parked, Token
from pylog.broker_lite.machines.offsets import OffsetEvent
from pylog.broker_lite.machines.outcome import Outcome, Reply
from pylog.broker_lite.protocol.consumer_offsets import GroupMetadataValue
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.join_group import PROTOCOL_NAME_NULL_SINCE, JoinGroupResponse
from pylog.broker_lite.protocol.sync_group import SyncGroupResponse

SESSION, JOIN, SYNC = "session", "join", "sync"


class TimerKey(NamedTuple):
    group_id: str
    kind: str
    member_id: str = ""  # of a session


class Answer(NamedTuple):
    """To a request that was given in with this token, now or long ago."""

    token: Token
    reply: JoinGroupResponse | SyncGroupResponse


class Client(NamedTuple):
    """Who asks."""

    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The defaults are Kafka's."""

    session_timeout_ms_min: int = 6_000  # group.min.session.timeout.ms
    session_timeout_ms_max: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    members_max: int = (1 << 31) - 1  # group.max.size
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """The group, as it is to be found after a restart."""

    group_id: str
    value: GroupMetadataValue | None  # None: it is gone


def refused_join(parked: Parked, code: ErrorCode, member_id: str) -> Answer:
    name = None if parked.version >= PROTOCOL_NAME_NULL_SINCE else ""
    return Answer(parked.token, JoinGroupResponse(error_code=code, protocol_name=name, member_id=member_id))


def refused_sync(token: Token, code: ErrorCode) -> Answer:
    return Answer(token, SyncGroupResponse(error_code=code))


Event = GroupEvent | OffsetEvent


@dataclass(frozen=True, slots=True)
class GroupOutcome(Outcome[Event, Reply], Generic[Reply]):
    group_id: str
    before: Group | None  # what was decided on
    after: Group | None  # what the group becomes; None: there is none
    answers: list[Answer] = field(default_factory=list)
    deadlines_ms: Mapping[TimerKey, int | None] = field(default_factory=dict)  # None: no longer waited for
