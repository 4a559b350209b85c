"""A real Kafka, as a side that transcripts of groups can be run on: requests over sockets, records from its log."""

import selectors
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pylog.broker_lite import event_log
from pylog.broker_lite.machines.group_outcome import Event
from pylog.broker_lite.machines.offsets import OffsetEvent
from pylog.broker_lite.protocol import create_topics, describe_groups, find_coordinator, framing, heartbeat
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.batch import walk
from pylog.storage.records import decode_batch
from tests.support.group_transcripts import TOPICS, Answered, Names

ANSWER_SECONDS_MAX = 20.0
READY_SECONDS_MAX = 60.0
STATE_SECONDS_MAX = 2.0
TAKEN_UP_SECONDS = 0.3


class _Waiting(NamedTuple):
    who: str
    api: Any
    version: int
    connection: socket.socket


class KafkaSide:
    def __init__(self, bootstrap_servers: str, offsets_log: Path, suffix: str) -> None:
        """`offsets_log`: the folder of `__consumer_offsets-0`, its only partition."""
        host, port = bootstrap_servers.rsplit(":", 1)
        self._address = (host, int(port))
        self._offsets_log = offsets_log
        self._suffix = suffix
        self._idle: dict[str, list[socket.socket]] = {}
        self._waiting: list[_Waiting] = []
        self._events_before = 0

    def close(self) -> None:
        idle = [connection for connections in self._idle.values() for connection in connections]
        for connection in [*idle, *(one.connection for one in self._waiting)]:
            connection.close()

    def prepare(self) -> None:
        """The topics of the transcripts, and a coordinator that answers."""
        wanted = [create_topics.CreatableTopic(name, count, 1) for name, count in TOPICS.items()]
        self._now(create_topics.SPEC, create_topics.CreateTopicsRequest(wanted, 10_000), 5)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            found = self._now(find_coordinator.SPEC, find_coordinator.FindCoordinatorRequest("g"), 2)
            beat = self._now(heartbeat.SPEC, heartbeat.HeartbeatRequest("g", 1, "unknown"), 4)
            if found.error_code == ErrorCode.NONE and beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._events_before = len(self.all_events())  # of the group without a name, which all share
                return
            time.sleep(0.1)
        raise AssertionError("Kafka's group coordinator is not ready")

    def ask(self, who: str, api: Any, request: Any, version: int) -> None:
        """One that waits keeps its connection to itself: Kafka answers the requests of a connection in order."""
        idle = self._idle.setdefault(who, [])
        connection = idle.pop() if idle else self._connected()
        self._send(who, connection, api, request, version)

    def _connected(self) -> socket.socket:
        """A request on a connection that Kafka has not taken up yet could be overtaken by later ones on others."""
        connection = socket.create_connection(self._address)
        self._send("new", connection, find_coordinator.SPEC, find_coordinator.FindCoordinatorRequest("g"), 2)
        self._read(self._waiting[-1])
        self._idle.pop("new")
        return connection

    def _send(self, who: str, connection: socket.socket, api: Any, request: Any, version: int) -> None:
        frame = bytearray()
        framing.write_request_header(frame, api.key, version, 1, who, flexible=api.is_flexible(version))
        frame += api.encode_request(request, version)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        self._waiting.append(_Waiting(who, api, version, connection))

    def _now(self, api: Any, request: Any, version: int) -> Any:
        self.ask("tool", api, request, version)
        return self._read(self._waiting[-1]).reply

    def control(self, command: str, options: dict[str, str]) -> None:
        raise AssertionError(f"no client can ask for {command}")

    def answers(self, expected: Sequence[str]) -> list[Answered]:
        missing = list(expected)
        found: list[Answered] = []
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while missing and time.monotonic() < deadline:
            for one in self._readable(0.05):
                found.append(self._read(one))
                if one.who in missing:
                    missing.remove(one.who)
        # A request that waits is not answered, so nobody can tell when Kafka takes it up; the next is not to pass it.
        found += [self._read(one) for one in self._readable(0)]
        if self._waiting:
            time.sleep(TAKEN_UP_SECONDS)
        return found + [self._read(one) for one in self._readable(0)]

    def _readable(self, seconds_max: float) -> list[_Waiting]:
        with selectors.DefaultSelector() as selector:
            for one in self._waiting:
                selector.register(one.connection, selectors.EVENT_READ, one)
            return [key.data for key, _ in selector.select(seconds_max)] if self._waiting else []

    def _read(self, one: _Waiting) -> Answered:
        one.connection.settimeout(ANSWER_SECONDS_MAX)
        (size,) = struct.unpack(">i", _read_exactly(one.connection, 4))
        frame = _read_exactly(one.connection, size)
        _, start = framing.read_response_header(frame, one.api.key, flexible=one.api.is_flexible(one.version))
        self._waiting.remove(one)
        self._idle.setdefault(one.who, []).append(one.connection)
        return Answered(one.who, one.api, one.api.decode_response(frame[start:], one.version))

    def events(self) -> list[Event]:
        """None in between: Kafka may answer before it writes. See `all_events`."""
        return []

    def all_events(self) -> list[Event]:
        found: list[Event] = []
        for path in sorted(self._offsets_log.glob("*.log")):
            data = path.read_bytes()
            for position, _ in walk(data):
                for record in decode_batch(data, position):
                    event = event_log.event(record)
                    if event is not None and self._is_mine(event):
                        found.append(event)
        return found[self._events_before :]

    def _is_mine(self, event: Event) -> bool:
        group_id = event.key.group if isinstance(event, OffsetEvent) else event.group_id
        return group_id.endswith(self._suffix) or group_id == ""

    def state(self, group_id: str, names: Names, expected: str) -> str:
        """A request that waits may not have arrived yet: who expects another state is given time to see it."""
        deadline = time.monotonic() + STATE_SECONDS_MAX
        while True:
            described = self._now(describe_groups.SPEC, describe_groups.DescribeGroupsRequest([group_id]), 5)
            state: str = described.groups[0].group_state
            if state == expected or time.monotonic() > deadline:
                return state


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("closed before the answer was whole")
        data += part
    return data
