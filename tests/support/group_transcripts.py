"""Transcripts of groups: a text file of steps. Each step is commands, `----`, and what comes of them.

    join a                     one command a line: what, who, and options `name=value`
    ----
    > a: JoinGroup NONE ...    an answer, to whom; those of one step are sorted by whom
    log g: generation=1 ...    a record in `__consumer_offsets`
    = Stable g: session a 10s  the group's state, and its deadlines

A client remembers its member id and generation from the answer to its last JoinGroup, as real ones do. Member ids are
shown as `a-1`: the client's name, or the instance's, and which of that name it is.

Whoever understands requests can be a judge: `run` takes a `Side`, which is the machine or a real Kafka."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from pylog.broker_lite.machines.group_outcome import Event
from pylog.broker_lite.machines.offsets import OffsetEvent
from pylog.broker_lite.protocol import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    sync_group,
)
from pylog.broker_lite.protocol.consumer_protocol import Subscription, encode_subscription
from pylog.broker_lite.protocol.errors import ErrorCode

TOPICS = {"t": 4, "u": 4}  # that exist, and their partitions
TOO_LONG = "x" * 4097  # for `offset.metadata.max.bytes`
RULE = "----"
# Ours count, Kafka's are random: the name is the shortest that fits, since a random one may well end in digits alone.
_MEMBER_ID = re.compile(r"(.+?)-(?:\d+|[0-9a-f]{8}-[0-9a-f-]{27})")
CONTROLS = ("advance", "restart", "expire", "topic-deleted")  # what no client can ask for


class Answered(NamedTuple):
    who: str
    api: Any
    reply: Any


class Side(Protocol):
    """Where requests go. Answers come from `answers`, at once or steps later."""

    def ask(self, who: str, api: Any, request: Any, version: int) -> None: ...

    def control(self, command: str, options: dict[str, str]) -> None:
        """One of CONTROLS."""

    def answers(self, expected: Sequence[str]) -> list[Answered]:
        """Those that have come since. `expected` are the clients that are to get one."""

    def events(self) -> list[Event]:
        """Those since this was asked last."""

    def state(self, group_id: str, names: "Names", expected: str) -> str: ...


class Step(NamedTuple):
    commands: list[str]
    results: list[str]


def read_steps(text: str) -> list[Step]:
    steps = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line for line in block.splitlines() if line.strip()]
        if RULE not in lines:
            steps.append(Step(lines, []))
        else:
            middle = lines.index(RULE)
            steps.append(Step(lines[:middle], lines[middle + 1 :]))
    return steps


def write_steps(steps: Sequence[Step]) -> str:
    blocks = []
    for step in steps:
        is_remark = all(line.startswith("#") for line in step.commands)
        blocks.append("\n".join(step.commands if is_remark else [*step.commands, RULE, *step.results]))
    return "\n\n".join(blocks) + "\n"


@dataclass
class _Client:
    member_id: str = ""
    generation: int = -1
    instance: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


class Names:
    """Member ids as transcripts show them."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def of(self, member_id: str) -> str:
        match = _MEMBER_ID.fullmatch(member_id)
        if match is None:
            return member_id or "-"
        if member_id not in self._shown:
            self._counts[match[1]] += 1
            self._shown[member_id] = f"{match[1]}-{self._counts[match[1]]}"
        return self._shown[member_id]


class Transcript:
    """Runs steps on one side. `suffix` makes group names that nobody else has."""

    def __init__(self, side: Side, suffix: str = "") -> None:
        self._side = side
        self._suffix = suffix
        self._clients: dict[str, _Client] = {}
        self._names = Names()

    def run(self, step: Step) -> list[str]:
        group_id = "g"
        for line in step.commands:
            if not line.startswith("#"):
                group_id = self._command(line)
        expected = [match[1] for line in step.results if (match := re.match(r"> (\S+):", line))]
        lines = [self._answer(one) for one in sorted(self._side.answers(expected), key=lambda one: one.who)]
        lines += self.shown(self._side.events())
        if not step.commands[-1].startswith("#"):
            expected_state = next((line[2:].split()[0] for line in step.results if line.startswith("= ")), "")
            lines.append(f"= {self._side.state(self._full(group_id), self._names, expected_state)}")
        return lines

    def shown(self, events: Sequence[Event]) -> list[str]:
        return [show_event(event, self._names, self._suffix) for event in events]

    def _full(self, group_id: str) -> str:
        return group_id and group_id + self._suffix

    def _command(self, line: str) -> str:
        what, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        others = [word for word in words if "=" not in word]
        group_id = options.get("group", "g")
        if what in CONTROLS:
            self._side.control(what, options | {"argument": others[0] if others else ""})
        else:
            api, request, version = self._request(what, others, options, self._full(group_id))
            self._side.ask(others[0] if others else "admin", api, request, version)
        return group_id

    def _request(self, what: str, others: list[str], options: dict[str, str], group_id: str) -> tuple[Any, Any, int]:
        who = others[0] if others else "admin"
        client = self._clients.setdefault(who, _Client())
        if "id" in options:
            client.member_id = self._id_of(options["id"])
        if "generation" in options:
            client.generation = int(options["generation"])
        if "instance" in options:
            client.instance = options["instance"] or None
        make = getattr(self, f"_{what.replace('-', '_')}")
        api, request = make(client, options, group_id)
        return api, request, int(options.get("v", api.names_max))

    def _id_of(self, name: str) -> str:
        """`id=b` is the member id of client b; `id=` none; anything else stands for itself."""
        return self._clients[name].member_id if name in self._clients else name

    def _join(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        metadata = encode_subscription(
            Subscription([topic for topic in options.get("topics", "t").split(",") if topic])
        )
        return join_group.SPEC, join_group.JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            member_id=client.member_id,
            group_instance_id=client.instance,
            protocol_type=options.get("type", "consumer"),
            protocols=[
                join_group.JoinGroupRequestProtocol(name, metadata)
                for name in options.get("protocols", "range").split(",")
                if name
            ],
        )

    def _sync(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        pairs = [pair.split(":") for pair in options.get("assign", "").split(",") if pair]
        return sync_group.SPEC, sync_group.SyncGroupRequest(
            group_id,
            client.generation,
            client.member_id,
            client.instance,
            options.get("type", "consumer") or None,
            options.get("protocol", client.protocol_name or "range") or None,
            [sync_group.SyncGroupRequestAssignment(self._id_of(who), what.encode()) for who, what in pairs],
        )

    def _heartbeat(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        return heartbeat.SPEC, heartbeat.HeartbeatRequest(
            group_id, client.generation, client.member_id, client.instance
        )

    def _leave(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        """`members=a,:i` for many: a client's id, or an instance id behind a colon, or both."""
        members = [leave_group.MemberIdentity(client.member_id, client.instance)]
        if "members" in options:
            parts = [one.partition(":") for one in options["members"].split(",")]
            members = [
                leave_group.MemberIdentity(self._id_of(who) if who else "", instance or None)
                for who, _, instance in parts
            ]
        return leave_group.SPEC, leave_group.LeaveGroupRequest(group_id, client.member_id, members)

    def _commit(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        """`t-0=5`; nobody in particular is `id= generation=-1`."""
        topics: dict[str, list[Any]] = {}
        for name, value in options.items():
            if match := re.fullmatch(r"([a-z]+)-(\d+)", name):
                metadata = TOO_LONG if value == "long" else ""
                offset = 0 if value == "long" else int(value)
                one = offset_commit.OffsetCommitRequestPartition(int(match[2]), offset, -1, metadata)
                topics.setdefault(match[1], []).append(one)
        return offset_commit.SPEC, offset_commit.OffsetCommitRequest(
            group_id,
            client.generation,
            client.member_id,
            client.instance,
            int(options.get("retention", "-1")),
            [offset_commit.OffsetCommitRequestTopic(name, partitions=found) for name, found in topics.items()],
        )

    def _delete_offsets(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        topics: dict[str, list[Any]] = {}
        for place in options["places"].split(","):
            topic, _, partition = place.rpartition("-")
            topics.setdefault(topic, []).append(offset_delete.OffsetDeleteRequestPartition(int(partition)))
        return offset_delete.SPEC, offset_delete.OffsetDeleteRequest(
            group_id, [offset_delete.OffsetDeleteRequestTopic(name, partitions) for name, partitions in topics.items()]
        )

    def _describe(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        return describe_groups.SPEC, describe_groups.DescribeGroupsRequest([group_id])

    def _list(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        states = [state for state in options.get("states", "").split(",") if state]
        types = [name for name in options.get("types", "").split(",") if name]
        return list_groups.SPEC, list_groups.ListGroupsRequest(states, types)

    def _delete(self, client: _Client, options: dict[str, str], group_id: str) -> tuple[Any, Any]:
        return delete_groups.SPEC, delete_groups.DeleteGroupsRequest([group_id])

    # -- showing

    def _answer(self, answered: Answered) -> str:
        who, api, reply = answered
        client = self._clients[who]
        if isinstance(reply, join_group.JoinGroupResponse):
            if reply.error_code == ErrorCode.NONE:
                client.generation, client.protocol_name = reply.generation_id, reply.protocol_name
            if reply.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = reply.member_id
        return f"> {who}: {api.name} {show_reply(reply, self._names, self._suffix)}"


def show_reply(reply: Any, names: Names, suffix: str) -> str:
    code = ErrorCode(reply.error_code).name if hasattr(reply, "error_code") else ""
    match reply:
        case join_group.JoinGroupResponse(error_code=ErrorCode.NONE):
            members = sorted(reply.members, key=lambda one: one.member_id)
            listed = ", ".join(
                names.of(one.member_id) + (f" ({one.group_instance_id})" if one.group_instance_id else "")
                for one in members
            )
            protocol = "/".join(filter(None, [reply.protocol_type, reply.protocol_name]))
            words = [
                f"{code} generation={reply.generation_id} {protocol}",
                f"id={names.of(reply.member_id)} leader={names.of(reply.leader)}",
            ]
            words += [f"members=[{listed}]"] if members else []
            words += ["skip assignment"] if reply.skip_assignment else []
            return " ".join(words)
        case join_group.JoinGroupResponse():
            return f"{code} id={names.of(reply.member_id)}"
        case sync_group.SyncGroupResponse():
            return f"{code} {reply.assignment.decode()}".rstrip()
        case leave_group.LeaveGroupResponse():
            left = [
                f"{names.of(one.member_id)}{f' ({one.group_instance_id})' if one.group_instance_id else ''}"
                f" {ErrorCode(one.error_code).name}"
                for one in reply.members
            ]
            return " ".join([code, ", ".join(left)]).rstrip()
        case offset_commit.OffsetCommitResponse() | offset_delete.OffsetDeleteResponse():
            places = sorted(
                f"{topic.name}-{one.partition_index} {ErrorCode(one.error_code).name}"
                for topic in reply.topics
                for one in topic.partitions
            )
            return " ".join([code, ", ".join(places)]).strip()
        case describe_groups.DescribeGroupsResponse(groups=[group]):
            described = [
                f"{names.of(one.member_id)}{f' ({one.group_instance_id})' if one.group_instance_id else ''}"
                f" {one.client_id}@{one.client_host} reads={len(one.member_metadata) > 0}"
                f" assigned={one.member_assignment.decode() or '-'}"
                for one in sorted(group.members, key=lambda one: one.member_id)
            ]
            words = [ErrorCode(group.error_code).name, group.group_state]
            words += [f"{group.protocol_type}/{group.protocol_data}"] if group.protocol_type else []
            words += [f"members=[{', '.join(described)}]"] if described else []
            return " ".join(words)
        case list_groups.ListGroupsResponse():
            groups = sorted(
                f"{one.group_id.removesuffix(suffix)} {one.protocol_type or '-'} {one.group_state} {one.group_type}"
                for one in reply.groups
                if one.group_id.endswith(suffix)
            )
            return " ".join([code, ", ".join(groups)]).rstrip()
        case delete_groups.DeleteGroupsResponse(results=[result]):
            return ErrorCode(result.error_code).name
        case _:
            return code


def show_event(event: Event, names: Names, suffix: str) -> str:
    if isinstance(event, OffsetEvent):
        group_id = event.key.group.removesuffix(suffix)
        if event.value is None:
            return f"log {group_id} {event.key.topic}-{event.key.partition}: gone"
        until = " with an end" if event.value.expire_timestamp_ms >= 0 else ""
        return f"log {group_id} {event.key.topic}-{event.key.partition}: offset={event.value.offset}{until}"
    group_id, value = event.group_id.removesuffix(suffix), event.value
    if value is None:
        return f"log {group_id}: gone"
    members = ", ".join(
        f"{names.of(one.member_id)}{f' ({one.group_instance_id})' if one.group_instance_id else ''}"
        f" {one.assignment.decode() or '-'}"
        for one in sorted(value.members, key=lambda one: one.member_id)
    )
    words = [f"log {group_id}: generation={value.generation} {value.protocol_type or '-'}/{value.protocol or '-'}"]
    words += [f"leader={names.of(value.leader)}"] if value.leader else []
    words += [f"members=[{members}]"] if members else []
    return " ".join(words)
