"""kill -9 while clients write, read and commit: what was acknowledged stays, at the offset that was promised; what a
reader has seen stays, and the high watermark that it was told is never taken back; commits never go back; a group's
members go on where they were.

Two rounds in `make test`; `make faults` runs twenty. The seed is printed."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import pylog
from tests.support.group_members import Member, Wanted, members, until, until_shared

ROUNDS = int(os.environ.get("PYLOG_FAULT_ROUNDS", "2"))
PARTITIONS = 3
SESSION_MS = 30_000  # longer than any restart: members stay members
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}
CONFIG = {
    "num.partitions": PARTITIONS,
    "log.segment.bytes": 300_000,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}


class Acknowledged:
    """By partition and offset: the value that the broker said it has."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, int], bytes] = {}

    def note(self, error: object, message: Any) -> None:
        if error is None:
            place = message.partition(), message.offset()
            assert place not in self.values, f"two records were promised {place}"
            self.values[place] = message.value()


class Reader:
    """Reads along all the time and commits how far it is, through every kill."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.seen: dict[tuple[int, int], bytes] = {}
        self.high_watermarks = dict.fromkeys(range(PARTITIONS), 0)
        self.committed = dict.fromkeys(range(PARTITIONS), 0)  # what was acknowledged
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "progress",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        self.check()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._read()
        except BaseException as error:
            self._failure = error
        finally:
            self._consumer.close()

    def _read(self) -> None:
        positions: dict[int, int] = {}
        for message in self._consumer.consume(1000, 0.05):
            if message.error() is not None:
                continue  # the broker is away
            place = message.partition(), message.offset()
            assert place not in self.seen, f"{place} came twice"
            self.seen[place] = message.value()
            positions[place[0]] = place[1] + 1
        for partition, known in self.high_watermarks.items():
            told = self._consumer.get_watermark_offsets(TopicPartition("t", partition), cached=True)[1]
            assert told < 0 or told >= known, f"the high watermark of {partition} went from {known} back to {told}"
            self.high_watermarks[partition] = max(known, told)
        if positions:
            with contextlib.suppress(KafkaException):  # no answer: it may be there or not
                wanted = [TopicPartition("t", partition, offset) for partition, offset in positions.items()]
                for place in self._consumer.commit(offsets=wanted, asynchronous=False):
                    if place.error is None:
                        self.committed[place.partition] = place.offset


def write_until_killed(broker: pylog.Broker, acknowledged: Acknowledged, chance: random.Random, number: int) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 1, "retries": 0, **QUIET}
    )
    deadline = time.monotonic() + chance.uniform(0.1, 0.6)
    count = 0
    while time.monotonic() < deadline:
        for _ in range(50):
            value = f"{number}-{count}-".encode() + bytes(chance.randrange(2000))
            producer.produce("t", value, partition=count % PARTITIONS, on_delivery=acknowledged.note)
            count += 1
        producer.poll(0)
    broker.kill()
    producer.purge()
    producer.flush(10)


def read_everything(bootstrap_servers: str) -> dict[tuple[int, int], bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.partition.eof": False, **QUIET}
    )
    ends = {p: consumer.get_watermark_offsets(TopicPartition("t", p), timeout=20)[1] for p in range(PARTITIONS)}
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + 30
    while len(found) < sum(ends.values()):
        assert time.monotonic() < deadline, f"{len(found)} of {sum(ends.values())} records came"
        for message in consumer.consume(10_000, timeout=0.2):
            assert message.error() is None
            found[message.partition(), message.offset()] = message.value()
    consumer.close()
    return found


def committed(bootstrap_servers: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "progress", **QUIET})
    places = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    found = consumer.committed(places, timeout=20)
    consumer.close()
    return {place.partition: max(place.offset, 0) for place in found}


@contextlib.contextmanager
def reading_along(bootstrap_servers: str) -> Iterator[tuple[Reader, list[Member]]]:
    wanted = Wanted("confluent-kafka", bootstrap_servers, "members", "t", session_ms=SESSION_MS)
    reader = Reader(bootstrap_servers)
    try:
        with members(wanted, wanted) as group:
            until_shared(group, PARTITIONS)
            yield reader, group
    finally:
        reader.close()


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_what_was_acknowledged_is_there_after_every_kill():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged = Acknowledged()
    with pylog.Broker(config=CONFIG) as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET}).list_topics("t", timeout=30)  # makes it
        with reading_along(broker.bootstrap_servers) as (reader, group):
            for number in range(ROUNDS):
                write_until_killed(broker, acknowledged, chance, number)
                broker.start()
                found = read_everything(broker.bootstrap_servers)
                for place, value in acknowledged.values.items():
                    assert found.get(place) == value, f"acknowledged in or before round {number}, and not at {place}"
                for place, value in dict(reader.seen).items():
                    assert found.get(place) == value, f"read in or before round {number}, and not at {place}"
                before = dict(reader.committed)
                after = committed(broker.bootstrap_servers)
                assert all(after[partition] >= offset for partition, offset in before.items()), (before, after)

                def everything_came(everything=frozenset(found)) -> bool:
                    reader.check()
                    by_group = {place[:2] for member in group for place in list(member.read)}
                    return everything <= reader.seen.keys() and everything <= by_group

                until(everything_came, "the reader and the group's members")
            read = [place[:2] for member in group for place in member.read]
            assert len(read) == len(set(read)), "a member read again what was another's, or its own"
    assert acknowledged.values, "nothing was acknowledged: the test says nothing"
    assert max(reader.committed.values()) > 0
