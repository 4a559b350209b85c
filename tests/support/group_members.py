"""Members of groups, of three client libraries behind one face, each in a thread of its own or, to be killed, in a
process of its own.

A member polls all the time, as clients must; what it has read and what it is assigned can be looked at meanwhile."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

TIMEOUT_SECONDS = 45
HEARTBEAT_MS = 200
_POLL_MS = 50

Read = tuple[int, int, bytes]  # partition, offset, value


@dataclass(frozen=True)
class Wanted:
    client: str
    servers: str
    group: str
    topic: str
    strategy: str = "range"
    instance_id: str | None = None
    session_ms: int = 10_000


class Owner(Protocol):
    def look(self) -> set[int]:
        """The partitions that it is assigned; raises if it has failed."""


class Client(Protocol):
    def poll(self) -> list[Read]: ...

    def assigned(self) -> set[int]: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, wanted: Wanted) -> None:
        static = {} if wanted.instance_id is None else {"group.instance.id": wanted.instance_id}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": wanted.servers,
                "group.id": wanted.group,
                "partition.assignment.strategy": wanted.strategy,
                "session.timeout.ms": wanted.session_ms,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": _POLL_MS,
                "reconnect.backoff.max.ms": 200,
                **static,
            }
        )
        self._consumer.subscribe([wanted.topic])

    def poll(self) -> list[Read]:
        messages: list[Any] = self._consumer.consume(1000, _POLL_MS / 1000)
        return [(one.partition(), one.offset(), one.value()) for one in messages if one.error() is None]

    def assigned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        for place in self._consumer.commit(asynchronous=False):
            assert place.error is None, place.error

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    _STRATEGIES = {  # noqa: RUF012 (a table)
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def __init__(self, wanted: Wanted) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=wanted.servers,
            group_id=wanted.group,
            group_instance_id=wanted.instance_id,
            partition_assignment_strategy=[self._STRATEGIES[wanted.strategy]],
            session_timeout_ms=wanted.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=_POLL_MS,
            reconnect_backoff_max_ms=200,
        )
        # If it leads before it has heard of the topic it gives nobody anything, and at times does not join again.
        assert self._consumer.partitions_for_topic(wanted.topic)
        self._consumer.subscribe([wanted.topic])

    def poll(self) -> list[Read]:
        return [
            (one.partition, one.offset, one.value) for found in self._consumer.poll(_POLL_MS).values() for one in found
        ]

    def assigned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class AioKafka:
    _STRATEGIES = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}  # noqa: RUF012 (a table)

    def __init__(self, wanted: Wanted) -> None:
        self._loop = asyncio.new_event_loop()

        async def start() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                wanted.topic,
                bootstrap_servers=wanted.servers,
                group_id=wanted.group,
                group_instance_id=wanted.instance_id,
                partition_assignment_strategy=[self._STRATEGIES[wanted.strategy]],
                session_timeout_ms=wanted.session_ms,
                heartbeat_interval_ms=HEARTBEAT_MS,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=_POLL_MS,
            )
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(start())

    def poll(self) -> list[Read]:
        found = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=_POLL_MS))
        return [(one.partition, one.offset, one.value) for messages in found.values() for one in messages]

    def assigned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


CLIENTS: dict[str, Callable[[Wanted], Client]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


class Member:
    """In a thread."""

    def __init__(self, wanted: Wanted) -> None:
        self.read: list[Read] = []
        self.assigned: set[int] = set()
        self._wanted = wanted
        self._asked: list[tuple[Callable[[Client], None], threading.Event]] = []
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            client = CLIENTS[self._wanted.client](self._wanted)
            while not self._stop.is_set():
                self.read += client.poll()
                self.assigned = client.assigned()
                while self._asked:
                    work, done = self._asked[0]
                    work(client)
                    self._asked.pop(0)
                    done.set()
            client.close()
        except BaseException as error:
            self._failure = error
            raise

    def look(self) -> set[int]:
        if self._failure is not None:
            raise self._failure
        return self.assigned

    def commit(self) -> None:
        """All that it has read."""
        done = threading.Event()
        self._asked.append((lambda client: client.commit(), done))
        until(lambda: done.is_set() or (self.look() is None), "the commit")

    def close(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure


class ProcessMember:
    """In a process, which says what it is assigned."""

    def __init__(self, wanted: Wanted) -> None:
        command = [sys.executable, "-m", "tests.support.group_members", json.dumps(asdict(wanted))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.assigned: set[int] = set()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.assigned = set(json.loads(line))

    def look(self) -> set[int]:
        return self.assigned

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def members(*wanted: Wanted) -> Iterator[list[Member]]:
    """They leave at the end, where they have not yet."""
    started = [Member(one) for one in wanted]
    try:
        yield started
    finally:
        for member in started:
            if member._thread.is_alive():
                member.close()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come in {TIMEOUT_SECONDS} s"
        time.sleep(0.01)


def until_shared(group: Iterable[Owner], partitions: int) -> None:
    """Every partition has one owner, and every member the same share."""
    group = list(group)

    def is_shared() -> bool:
        shares = [one.look() for one in group]
        return (
            sorted(index for share in shares for index in share) == list(range(partitions))
            and max(map(len, shares)) - min(map(len, shares)) <= 1
        )

    until(is_shared, f"{partitions} partitions shared by {len(group)}")


def _main() -> None:
    member = Member(Wanted(**json.loads(sys.argv[1])))
    told = None
    while True:
        assigned = sorted(member.look())
        if assigned != told:
            print(json.dumps(assigned), flush=True)
            told = assigned
        time.sleep(0.02)


if __name__ == "__main__":
    _main()
