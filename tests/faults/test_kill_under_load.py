"""kill -9 while clients write: what was acknowledged stays, at the offset that was promised, and commits never go back.

Two rounds in `make test`; `make faults` runs twenty. The seed is printed."""

import os
import random
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import pylog

ROUNDS = int(os.environ.get("PYLOG_FAULT_ROUNDS", "2"))
PARTITIONS = 3
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}


class Acknowledged:
    """By partition and offset: the value that the broker said it has."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, int], bytes] = {}

    def note(self, error: object, message: object) -> None:
        if error is None:
            place = message.partition(), message.offset()
            assert place not in self.values, f"two records were promised {place}"
            self.values[place] = message.value()


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


def commit(bootstrap_servers: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "progress", **QUIET})
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap_servers: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "progress", **QUIET})
    (place,) = consumer.committed([TopicPartition("t", 0)], timeout=20)
    consumer.close()
    return place.offset


@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_what_was_acknowledged_is_there_after_every_kill():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged = Acknowledged()
    config = {"num.partitions": PARTITIONS, "log.segment.bytes": 300_000, "offsets.topic.num.partitions": 3}
    with pylog.Broker(config=config) as broker:
        for number in range(ROUNDS):
            commit(broker.bootstrap_servers, number) if number else None
            write_until_killed(broker, acknowledged, chance, number)
            broker.start()
            found = read_everything(broker.bootstrap_servers)
            for place, value in acknowledged.values.items():
                assert found.get(place) == value, f"acknowledged in or before round {number}, and not at {place}"
            if number:
                assert committed(broker.bootstrap_servers) == number
    assert acknowledged.values, "nothing was acknowledged: the test says nothing"
