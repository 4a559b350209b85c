"""What clients make the broker hold: as much as they have sent, within the bound, and nothing while they are idle."""

import asyncio
import struct
import threading
from collections.abc import Awaitable

import pytest

from pylog.broker_lite.client import Client
from pylog.broker_lite.connection import Answer, Parts
from tests.support.connected import Connected, connected
from tests.support.wire_clients import WireClient, eventually

KB = 1024
BOUND_BYTES = 256 * KB
BOUND = {"queued_max_request_bytes": BOUND_BYTES, "socket_request_max_bytes": BOUND_BYTES}


def echo(frame: memoryview, client: Client) -> Answer:
    return [struct.pack(">i", len(frame)), bytes(frame)]


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def used_bytes(served: Connected) -> int:
    used: int = served.on_loop(lambda: served.connections.memory.used_bytes)
    return used


class Gate:
    """Answers only when it is opened; requests that begin with a dot are answered at once."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.arrived = 0

    def __call__(self, frame: memoryview, client: Client) -> Answer:
        data = bytes(frame)
        self.arrived += 1
        return echo(memoryview(data), client) if data.startswith(b".") else self._later(data)

    async def _later(self, data: bytes) -> Parts:
        await asyncio.get_running_loop().run_in_executor(None, self.opened.wait)
        return [struct.pack(">i", len(data)), data]


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([1], id="one byte"),
        pytest.param([10, 20, 30] * 50, id="many that come together"),
        pytest.param([300 * KB], id="more than is received at once"),
        pytest.param([10, 300 * KB, 10, 3000 * KB, 1], id="small and large ones in turns"),
    ],
)
def test_frames_come_back_as_they_were_sent_and_leave_nothing(sizes: list[int]) -> None:
    frames = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    with connected(echo) as served, WireClient(served.bootstrap_servers) as client:
        sender = threading.Thread(target=client.send, args=[b"".join(map(sized, frames))])
        sender.start()
        for data in frames:
            assert client.answer() == data
        sender.join()
        assert eventually(lambda: used_bytes(served) == 0)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_frame_that_comes_in_pieces_is_put_together(step: int) -> None:
    data = sized(bytes(range(256)) * 8) * 2
    with connected(echo) as served, WireClient(served.bootstrap_servers) as client:
        for start in range(0, len(data), step):
            client.send(data[start : start + step])
        assert client.answer() == client.answer() == bytes(range(256)) * 8
        assert eventually(lambda: used_bytes(served) == 0)


def test_an_announcement_costs_nothing() -> None:
    with connected(echo) as served:
        clients = [WireClient(served.bootstrap_servers) for _ in range(20)]
        for client in clients:
            client.send(struct.pack(">i", 100 << 20) + b"so much will come")
        assert eventually(lambda: used_bytes(served) > 0)
        assert used_bytes(served) <= 20 * KB
        for client in clients:
            client.close()
        assert eventually(lambda: used_bytes(served) == 0)


def test_who_sent_much_once_and_then_next_to_nothing_holds_next_to_nothing() -> None:
    with connected(echo) as served:
        clients = [WireClient(served.bootstrap_servers) for _ in range(20)]
        for client in clients:
            assert len(client.ask(sized(bytes(900 * KB)))) == 900 * KB
        for client in clients:
            client.send(struct.pack(">i", 900 * KB) + b"and so on")
        with WireClient(served.bootstrap_servers) as other:
            other.ask(sized(b"they have come"))
        assert eventually(lambda: 0 < used_bytes(served) <= 20 * 2 * KB)
        for client in clients:
            client.send(bytes(900 * KB - 9))
            assert len(client.answer()) == 900 * KB
            client.close()
        assert eventually(lambda: used_bytes(served) == 0)


def test_what_comes_behind_a_request_under_way_waits_in_the_socket() -> None:
    gate = Gate()
    with connected(gate) as served, WireClient(served.bootstrap_servers) as client:
        client.send(sized(b"slow"))
        flood = sized(b"." * (64 * KB))
        sender = threading.Thread(target=client.send, args=[flood * 400])  # 25 MB: more than the sockets hold
        sender.start()
        assert eventually(lambda: used_bytes(served) >= 64 * KB)
        assert not eventually(lambda: used_bytes(served) > 2000 * KB, seconds_max=1)
        assert gate.arrived == 1
        gate.opened.set()
        assert client.answer() == b"slow"
        for _ in range(400):
            assert len(client.answer()) == 64 * KB
        sender.join()
        assert eventually(lambda: used_bytes(served) == 0)


def test_where_memory_is_used_up_readers_wait_and_small_requests_pass() -> None:
    gate = Gate()
    with connected(gate, **BOUND) as served:
        slow = [WireClient(served.bootstrap_servers) for _ in range(30)]
        senders = [threading.Thread(target=one.send, args=[sized(b"x" * (100 * KB))]) for one in slow]
        for sender in senders:
            sender.start()
        assert eventually(lambda: served.on_loop(lambda: served.connections.memory.is_waited_for))
        assert used_bytes(served) <= BOUND_BYTES + 600 * KB, "and one request, and one look at the socket"
        assert gate.arrived < 30
        with WireClient(served.bootstrap_servers) as other:
            assert other.ask(sized(b".heartbeat")) == b".heartbeat"
        gate.opened.set()
        for one, sender in zip(slow, senders, strict=True):
            assert len(one.answer()) == 100 * KB
            sender.join()
            one.close()
        assert eventually(lambda: used_bytes(served) == 0)


def test_who_stalls_gives_the_memory_up_to_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.broker_lite.connections._STALL_TICKS_MAX", 1)
    with connected(echo, **BOUND) as served:
        stalled = [WireClient(served.bootstrap_servers) for _ in range(3)]
        for one in stalled:
            one.send(struct.pack(">i", 250 * KB) + bytes(100 * KB))
        assert eventually(lambda: used_bytes(served) >= BOUND_BYTES)
        with WireClient(served.bootstrap_servers) as other:
            other.send(sized(bytes(200 * KB)))
            assert len(other.answer()) == 200 * KB
        assert any(one.is_closed_by_peer() for one in stalled)


def test_requests_as_large_as_the_bound_are_answered_one_after_the_other() -> None:
    with connected(echo, **BOUND) as served:
        clients = [WireClient(served.bootstrap_servers) for _ in range(5)]
        senders = [threading.Thread(target=one.send, args=[sized(bytes(BOUND_BYTES)) * 3]) for one in clients]
        for sender in senders:
            sender.start()
        for client, sender in zip(clients, senders, strict=True):
            assert [len(client.answer()) for _ in range(3)] == [BOUND_BYTES] * 3
            sender.join()
            client.close()
        assert eventually(lambda: used_bytes(served) == 0)


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    answered = []

    def much(frame: memoryview, client: Client) -> Answer:
        answered.append(len(frame))
        return [struct.pack(">i", 64 * KB), bytes(64 * KB)]

    with connected(much) as served, WireClient(served.bootstrap_servers, receive_buffer_bytes=4096) as client:
        client.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            client.send(sized(b"more!") * 2_000_000)
        before = len(answered)
        assert before < 200, "sockets hold some megabytes; nothing more is made for it"
        with WireClient(served.bootstrap_servers) as other:
            other.ask(sized(b"."))
        assert len(answered) == before + 1


def test_small_pieces_of_a_large_answer_wait_for_the_client_too() -> None:
    """A fetch of very many partitions: a little of each."""

    async def many(data: bytes) -> Parts:
        return [struct.pack(">i", 3000 * 10 * KB), *[bytearray(10 * KB) for _ in range(3000)]]

    def answer(frame: memoryview, client: Client) -> Awaitable[Parts]:
        return many(bytes(frame))

    def written_bytes() -> int:
        return sum(one._transport.get_write_buffer_size() for one in served.connections._all)

    with connected(answer) as served, WireClient(served.bootstrap_servers, receive_buffer_bytes=4096) as client:
        client.send(sized(b"all"))
        assert eventually(lambda: served.on_loop(written_bytes) > 0)
        assert served.on_loop(written_bytes) < 1000 * KB
        assert len(client.answer()) == 3000 * 10 * KB


def test_a_producer_that_wants_no_answer_may_send_and_go() -> None:
    """Its records came whole, though the request before them was still under way."""
    gate = Gate()
    produced = []

    def answer(frame: memoryview, client: Client) -> Answer:
        if bytes(frame[:2]) == b"\0\0":
            produced.append(bytes(frame[2:]))
            return gate(frame[2:], client)
        return gate(frame, client)

    with connected(answer) as served:
        with WireClient(served.bootstrap_servers) as client:
            client.send(b"".join(sized(b"\0\0record %d" % number) for number in range(5)))
            client.send(sized(b"\0\1fetch") + sized(b"\0\0behind a fetch"))
            assert eventually(lambda: gate.arrived == 1)
        assert eventually(lambda: not served.on_loop(lambda: served.connections._all))
        gate.opened.set()
        assert eventually(lambda: len(produced) == 5)
        assert produced == [b"record %d" % number for number in range(5)]
        assert eventually(lambda: used_bytes(served) == 0)
