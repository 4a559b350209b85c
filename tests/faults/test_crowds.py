"""Very many connections that do nothing, or next to nothing, or never read: they cost little, and others nothing."""

import os
import random
import resource
import select
import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

import pylog
from pylog.broker_lite.protocol import fetch, produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from tests.support.foreign_clients import CLIENTS, ForeignRecord
from tests.support.logs import batch_of
from tests.support.wire_clients import API_VERSIONS, WireClient, eventually, frame, memory_bytes

CROWD = 1000
IDLE_BYTES_MAX = 10_000_000  # of a thousand that do nothing
NEVER_READERS = 50
MB = 1 << 20


@pytest.fixture
def broker() -> Iterator[pylog.Broker]:
    with pylog.Broker(config={"log.retention.ms": -1, "group.initial.rebalance.delay.ms": 0}) as running:
        CLIENTS["kafka-python"].create_topic(running.bootstrap_servers, "t", 1)
        yield running


@contextmanager
def crowd(servers: str, count: int) -> Iterator[list[socket.socket]]:
    """Each has been answered once, so the broker knows them all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * CROWD:
        pytest.skip(f"a process may have {hard} open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, port = servers.rsplit(":", 1)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        made = [stack.enter_context(socket.create_connection((host, int(port)), 60)) for _ in range(count)]
        for one in made:
            one.sendall(API_VERSIONS)
        for one in made:
            (size,) = struct.unpack(">i", one.recv(4, socket.MSG_WAITALL))
            one.recv(size, socket.MSG_WAITALL)
        yield made


def others_go_on(servers: str, number: int) -> None:
    """A producer and a consumer of another make, from the first connection to the last record."""
    records = [ForeignRecord(b"k", f"{number}-{one}".encode(), (), 1_700_000_000_000) for one in range(50)]
    topic = f"others-{number}"
    CLIENTS["confluent-kafka"].produce(servers, topic, records)
    assert CLIENTS["confluent-kafka"].consume(servers, topic, 50) == records


def test_a_thousand_idle_connections_take_ten_megabytes_at_most(broker: pylog.Broker) -> None:
    assert broker.pid is not None
    others_go_on(broker.bootstrap_servers, 0)
    before_bytes = memory_bytes(broker.pid)
    with crowd(broker.bootstrap_servers, CROWD) as idle:
        assert memory_bytes(broker.pid) - before_bytes < IDLE_BYTES_MAX
        others_go_on(broker.bootstrap_servers, 1)
        assert not select.select(idle[:500], [], [], 0)[0], "the broker has closed some, or told them something"


def test_a_thousand_that_send_a_byte_now_and_then_take_little_and_get_their_answers(broker: pylog.Broker) -> None:
    assert broker.pid is not None
    chance = random.Random(7)
    whole = frame(18, 0)
    others_go_on(broker.bootstrap_servers, 0)
    before_bytes = memory_bytes(broker.pid)
    with crowd(broker.bootstrap_servers, CROWD) as slow, crowd(broker.bootstrap_servers, CROWD):
        sent = [0] * CROWD
        for number in range(len(whole)):
            for index in chance.sample(range(CROWD), CROWD):
                slow[index].sendall(whole[sent[index] : sent[index] + 1])
                sent[index] += 1
            if number % 6 == 0:
                others_go_on(broker.bootstrap_servers, 1 + number)
            assert memory_bytes(broker.pid) - before_bytes < 2 * IDLE_BYTES_MAX
        for one in slow:
            assert len(one.recv(4, socket.MSG_WAITALL)) == 4


def test_large_promises_that_are_never_kept_take_no_memory(broker: pylog.Broker) -> None:
    assert broker.pid is not None
    others_go_on(broker.bootstrap_servers, 0)
    before_bytes = memory_bytes(broker.pid)
    with crowd(broker.bootstrap_servers, CROWD) as promising:
        for one in promising:
            one.sendall(struct.pack(">ihh", 100 * MB, 0, 9))
        others_go_on(broker.bootstrap_servers, 1)
        assert memory_bytes(broker.pid) - before_bytes < 2 * IDLE_BYTES_MAX


def test_readers_that_never_read_hold_no_records_in_memory(broker: pylog.Broker) -> None:
    """Each asks for megabytes again and again: in small pieces of many fetches, and in large ones."""
    assert broker.pid is not None
    with WireClient(broker.bootstrap_servers) as writer:
        for _ in range(40):
            request = ProduceRequest(None, -1, 1000, [ProducePartition("t", 0, batch_of(1, value=bytes(900_000)))])
            answer = writer.ask(frame(0, 7, b"".join(produce.encode_request(request, 7))))
            assert produce.decode_response(answer[4:], 7)[0].error_code == ErrorCode.NONE
    others_go_on(broker.bootstrap_servers, 0)
    before_bytes = memory_bytes(broker.pid)
    asked = fetch.encode_request(
        FetchRequest(0, 1, 50 * MB, 0, 0, -1, [FetchPartition("t", 0, 0, 40 * MB)]),
        11,
    )
    with ExitStack() as stack:
        for _ in range(NEVER_READERS):
            client = stack.enter_context(WireClient(broker.bootstrap_servers, receive_buffer_bytes=4096))
            client.send(frame(1, 11, asked) * 20)
        others_go_on(broker.bootstrap_servers, 1)
        assert memory_bytes(broker.pid) - before_bytes < 4 * IDLE_BYTES_MAX
        others_go_on(broker.bootstrap_servers, 2)
    assert eventually(lambda: not open_connections(broker), 60)


def test_producers_without_number_share_the_memory_that_there_is() -> None:
    """Half a gigabyte of requests at once, a few megabytes to receive them in."""
    config = {"queued.max.request.bytes": 8 * MB, "socket.request.max.bytes": MB, "log.retention.ms": -1}
    with pylog.Broker(config=config) as broker:
        assert broker.pid is not None
        CLIENTS["kafka-python"].create_topic(broker.bootstrap_servers, "t", 1)
        wanted = ProduceRequest(None, -1, 60_000, [ProducePartition("t", 0, batch_of(1, value=bytes(500_000)))])
        request = frame(0, 7, b"".join(produce.encode_request(wanted, 7)))
        others_go_on(broker.bootstrap_servers, 0)
        before_bytes = most_bytes = memory_bytes(broker.pid)
        with crowd(broker.bootstrap_servers, CROWD) as producers, selectors.DefaultSelector() as selector:
            for one in producers:
                one.setblocking(False)
                selector.register(one, selectors.EVENT_WRITE | selectors.EVENT_READ, Sending(request))
            offsets = []
            while len(offsets) < CROWD:
                ready = selector.select(60)
                assert ready, f"{len(offsets)} were answered, then none"
                for key, events in ready:
                    if events & selectors.EVENT_WRITE and key.data.left:
                        key.data.send(key.fileobj)
                        if not key.data.left:
                            selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
                    if events & selectors.EVENT_READ:
                        (result,) = produce.decode_response(key.fileobj.recv(1000)[8:], 7)
                        assert result.error_code == ErrorCode.NONE
                        offsets.append(result.base_offset)
                most_bytes = max(most_bytes, memory_bytes(broker.pid))
            assert sorted(offsets) == list(range(CROWD))
        assert most_bytes - before_bytes < 5 * IDLE_BYTES_MAX


class Sending:
    def __init__(self, data: bytes) -> None:
        self.left = memoryview(data)

    def send(self, to: socket.socket) -> None:
        with suppress(BlockingIOError):
            self.left = self.left[to.send(self.left[:100_000]) :]


def open_connections(broker: pylog.Broker) -> int:
    """Of the broker's process that lead to a client."""
    links = 0
    for name in os.listdir(f"/proc/{broker.pid}/fd"):
        try:
            links += os.readlink(f"/proc/{broker.pid}/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            continue
    return max(0, links - len(OWN_SOCKETS))


OWN_SOCKETS = ("listener", "self-pipe", "self-pipe")  # asyncio wakes itself through a pair of them
