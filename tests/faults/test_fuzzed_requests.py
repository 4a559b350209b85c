"""Mutated frames of every API and version: no crash, no error that nobody thought of, no memory that stays.

Some thousands in `make test`, ten times as many in `make faults`. The seed is printed; PYLOG_FUZZ_SEED repeats it."""

import os
import random
import select
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import pylog
from pylog.broker_lite.protocol import metadata
from pylog.broker_lite.protocol.metadata import MetadataRequest
from tests.support.foreign_clients import CLIENTS, ForeignRecord
from tests.support.fuzzed_frames import PARTITIONS, TOPICS, frames
from tests.support.wire_clients import API_VERSIONS, WireClient, memory_bytes
from tests.support.wire_requests import ask

FRAMES = 2000 * int(os.environ.get("PYLOG_FAULT_ROUNDS", "2"))
WARM_UP_FRAMES = 1500
ANSWER_SECONDS = 0.02  # then it is given up, as an impatient client does: some requests wait for others
GROWTH_BYTES_MAX = 10_000_000
CONFIG = {
    "auto.create.topics.enable": False,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,
    "socket.request.max.bytes": 1 << 20,
}


@pytest.fixture
def broker() -> Iterator[pylog.Broker]:
    with pylog.Broker(config=CONFIG) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        configs = {"compacted": {"cleanup.policy": "compact", "compression.type": "lz4"}}
        wanted = [NewTopic(name, PARTITIONS, config=configs.get(name, {})) for name in TOPICS]
        for made in admin.create_topics(wanted).values():
            made.result(30)
        yield running


class ImpatientClient:
    """Sends frame after frame; where the broker closes the connection, or does not answer soon, it comes back."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._client: WireClient | None = None
        self.answered = self.closed = self.given_up = 0

    def send(self, data: bytes) -> None:
        if self._client is None:
            self._client = WireClient(self._servers)
        sock = self._client.socket
        try:
            sock.sendall(data)
            if not select.select([sock], [], [], ANSWER_SECONDS)[0]:
                self.given_up += 1
            elif sock.recv(1 << 16):
                self.answered += 1
                return
            else:
                self.closed += 1
        except ConnectionError:
            self.closed += 1
        self._client.close()
        self._client = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


@pytest.mark.timeout(60 + FRAMES // 20)
def test_mutated_requests_harm_nobody(broker: pylog.Broker) -> None:
    seed = int(os.environ.get("PYLOG_FUZZ_SEED", random.randrange(1 << 32)))
    print(f"PYLOG_FUZZ_SEED={seed}")
    assert broker.pid is not None
    client = ImpatientClient(broker.bootstrap_servers)
    described = ask(broker.bootstrap_servers, metadata.SPEC, MetadataRequest(topics=None), 12)
    ids = [topic.topic_id for topic in described.topics]
    for data in frames(seed + 1, WARM_UP_FRAMES, ids):  # codecs of all versions are compiled, buffers have their size
        client.send(data)
    before_bytes = memory_bytes(broker.pid)
    with WireClient(broker.bootstrap_servers) as other:
        for number, data in enumerate(frames(seed, FRAMES, ids)):
            client.send(data)
            if number % 50 == 0:
                assert len(other.ask(API_VERSIONS)) > 10, f"others are not answered after frame {number}"
    client.close()
    print(f"{client.answered} answered, {client.closed} closed, {client.given_up} given up")
    unexpected = [line for line in broker.log.splitlines() if "failed" in line or "Traceback" in line]
    assert not unexpected, f"{unexpected[:5]}\n{broker.log[-5000:]}"
    grown_bytes = memory_bytes(broker.pid) - before_bytes
    assert grown_bytes < GROWTH_BYTES_MAX
    assert client.answered > FRAMES // 10
    assert client.closed > FRAMES // 10
    record = ForeignRecord(b"k", b"v", (), 1_700_000_000_000)
    CLIENTS["kafka-python"].create_topic(broker.bootstrap_servers, "after", 1)
    CLIENTS["confluent-kafka"].produce(broker.bootstrap_servers, "after", [record])
    assert CLIENTS["confluent-kafka"].consume(broker.bootstrap_servers, "after", 1) == [record]
