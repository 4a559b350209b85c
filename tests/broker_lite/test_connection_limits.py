"""How many connections there may be, for how long they may be idle, and what a broker without file handles does."""

import errno
import logging
import os
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import pylog
from pylog.broker_lite.client import Client
from pylog.broker_lite.connection import Answer
from pylog.storage.disk import DISK
from pylog.storage.log import FileSlice
from tests.support.connected import connected
from tests.support.wire_clients import API_VERSIONS, WireClient, eventually

HELLO = struct.pack(">i", 5) + b"hello"


def echo(frame: memoryview, client: Client) -> Answer:
    return [struct.pack(">i", len(frame)), bytes(frame)]


def test_one_too_many_of_an_address_is_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with connected(echo, max_connections_per_ip=2) as served:
        first, second = WireClient(served.bootstrap_servers), WireClient(served.bootstrap_servers)
        assert first.ask(HELLO) == second.ask(HELLO) == b"hello"
        for _ in range(2):
            with WireClient(served.bootstrap_servers) as third:
                assert third.is_closed_by_peer()
        assert served.on_loop(lambda: served.connections.refused_count) == 2
        assert "max.connections.per.ip=2" in caplog.text
        first.close()
        assert eventually(lambda: served.on_loop(lambda: served.connections.count) == 1)
        with WireClient(served.bootstrap_servers) as third:
            assert third.ask(HELLO) == b"hello"
        assert second.ask(HELLO) == b"hello"


def test_one_too_many_of_all_waits_until_another_goes(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka: the system holds it, and it is served as soon as there is a place."""
    with connected(echo, max_connections=2) as served:
        first, second = WireClient(served.bootstrap_servers), WireClient(served.bootstrap_servers)
        assert first.ask(HELLO) == second.ask(HELLO) == b"hello"
        with WireClient(served.bootstrap_servers) as third:
            third.send(HELLO)
            for _ in range(20):
                assert second.ask(HELLO) == b"hello"
            assert served.on_loop(lambda: served.connections.count) == 2
            assert "max.connections=2" in caplog.text
            first.close()
            assert third.answer() == b"hello"


def test_a_limit_that_is_changed_counts_from_now_on() -> None:
    from pylog.broker_lite.config import BrokerConfig

    with connected(echo) as served:
        first = WireClient(served.bootstrap_servers)
        assert first.ask(HELLO) == b"hello"
        served.config = BrokerConfig.parse({"max.connections.per.ip": 1})
        with WireClient(served.bootstrap_servers) as second:
            assert second.is_closed_by_peer()
        assert first.ask(HELLO) == b"hello"


def test_who_is_idle_for_too_long_is_closed_and_who_is_not_stays() -> None:
    with connected(echo, connections_max_idle_ms=1000) as served:
        idle, half, busy = (WireClient(served.bootstrap_servers) for _ in range(3))
        half.send(HELLO[:6])  # the part of a request is as good as nothing
        while served.on_loop(lambda: served.connections.idle_closed_count) < 2:
            assert busy.ask(HELLO) == b"hello"
            time.sleep(0.05)
        assert idle.is_closed_by_peer()
        assert half.is_closed_by_peer()
        assert busy.ask(HELLO) == b"hello"


def test_who_waits_for_the_broker_is_not_idle() -> None:
    import asyncio

    async def later() -> list[bytes | bytearray]:
        await asyncio.sleep(4)
        return [struct.pack(">i", 2), b"ok"]

    with (
        connected(lambda frame, client: later(), connections_max_idle_ms=1000) as served,  # type: ignore[arg-type,return-value]
        WireClient(served.bootstrap_servers) as client,
    ):
        assert client.ask(HELLO) == b"ok"


def test_who_does_not_take_its_answer_is_idle() -> None:
    with (
        connected(
            lambda frame, client: [struct.pack(">i", 50 << 20), bytes(50 << 20)], connections_max_idle_ms=1000
        ) as served,
        WireClient(served.bootstrap_servers, receive_buffer_bytes=4096) as client,
    ):
        client.send(HELLO)
        assert eventually(lambda: served.on_loop(lambda: served.connections.idle_closed_count) == 1)


def test_who_does_not_take_a_file_is_idle_and_its_descriptor_can_be_used_again(tmp_path: Path) -> None:
    """The kernel sends it, from a coroutine that waits for the socket: that must be gone before the socket is."""
    path = tmp_path / "log"
    path.write_bytes(bytes(50 << 20))
    answers = iter([[struct.pack(">i", 50 << 20), FileSlice(DISK.open(path), 0, 50 << 20)]])
    with connected(lambda frame, client: next(answers, [HELLO]), connections_max_idle_ms=1000) as served:
        host, port = served.bootstrap_servers.rsplit(":", 1)
        later = [socket.socket() for _ in range(5)]  # they have their descriptors already, the broker's sides do not
        with WireClient(served.bootstrap_servers, receive_buffer_bytes=4096) as client:
            client.send(HELLO)
            assert eventually(lambda: served.on_loop(lambda: served.connections.idle_closed_count) == 1)
            assert eventually(lambda: served.on_loop(lambda: served.connections.count) == 0)
            for one in later:
                one.settimeout(30)
                one.connect((host, int(port)))
                one.sendall(HELLO)
                assert one.recv(100) == HELLO
                one.close()


@contextmanager
def no_file_handles_left(held: list[socket.socket]) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 1, hard))
    try:
        with suppress(OSError):
            while True:
                held.append(socket.socket())
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            socket.socket()
        yield
    finally:
        highest.close()
        for one in held:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.faults
def test_without_file_handles_the_broker_goes_on_says_so_once_and_recovers(caplog: pytest.LogCaptureFixture) -> None:
    with connected(echo) as served:
        waiting = [WireClient(served.bootstrap_servers) for _ in range(2)]
        known = waiting.pop()
        assert known.ask(HELLO) == b"hello"
        host, port = served.bootstrap_servers.rsplit(":", 1)
        late = socket.socket()
        with no_file_handles_left([]):
            late.connect((host, int(port)))  # the system takes it; the broker cannot
            late.sendall(HELLO)
            assert eventually(lambda: "no connection can be accepted" in caplog.text)
            until = time.monotonic() + 2.5  # it is tried twice again meanwhile
            while time.monotonic() < until:
                assert known.ask(HELLO) == b"hello"
        late.settimeout(30)
        assert late.recv(100) == HELLO
        late.close()
        assert caplog.text.count("no connection can be accepted") == 1
        assert "socket.accept" not in caplog.text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "this looks like HTTP", id="HTTP"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "this looks like HTTP/2", id="HTTP/2"),
        pytest.param(bytes.fromhex("16030100c8010000c40303") + bytes(189), "this looks like TLS", id="TLS"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "this looks like SSH", id="SSH"),
        pytest.param(b"\xff\xff\xff\xff", "announced a request of -1 bytes", id="a size that cannot be"),
        pytest.param(struct.pack(">ihhih", 10, 9999, 0, 0, -1), "API 9999 is not implemented", id="an unknown API"),
    ],
)
def test_one_line_says_why_a_connection_was_closed(data: bytes, words: str) -> None:
    with pylog.Broker() as broker:
        with WireClient(broker.bootstrap_servers) as bad, WireClient(broker.bootstrap_servers) as good:
            bad.send(data)
            assert bad.is_closed_by_peer()
            assert len(good.ask(API_VERSIONS)) > 10
        lines = broker.log.splitlines()
    assert len(lines) == 1
    assert words in lines[0]
    assert "127.0.0.1:" in lines[0]
