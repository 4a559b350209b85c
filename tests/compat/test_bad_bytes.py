"""What is not Kafka's protocol costs its own connection, and nobody else's."""

import random
import socket
import struct

import pytest

from pylog.broker_lite.protocol import framing
from tests.support.foreign_clients import CLIENTS, ForeignRecord

pytestmark = pytest.mark.faults

RECORD = ForeignRecord(b"k", b"v", (), 1_700_000_000_000)
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(189)


def request(api_key: int, version: int, body: bytes = b"", *, flexible: bool = False) -> bytes:
    frame = bytearray()
    framing.write_request_header(frame, api_key, version, 1, "test", flexible=flexible)
    frame += body
    return struct.pack(">i", len(frame)) + frame


def connect(servers: str) -> socket.socket:
    host, port = servers.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=20)


def closed_by_peer(connection: socket.socket) -> bool:
    """True when the broker ends the connection; an answer would be data."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(TLS_HELLO, id="a TLS hello"),
        pytest.param(b"\x7f\xff\xff\xff" + b"x" * 100, id="an oversized length"),
        pytest.param(b"\xff\xff\xff\xff", id="a negative length"),
        pytest.param(b"\x00\x00\x00\x00", id="an empty frame"),
        pytest.param(b"\x00\x00\x00\x03abc", id="a frame too short for its header"),
        pytest.param(request(9999, 0), id="an API that is not there"),
        pytest.param(request(11, 0), id="an API that is not there yet"),
        pytest.param(request(3, 99), id="a version that is not there"),
        pytest.param(request(3, -1), id="a negative version"),
        pytest.param(request(0, 2, bytes(20)), id="a produce version that is advertised for old clients alone"),
        pytest.param(request(3, 1, b"\x7f\xff\xff\xff"), id="a lying count"),
        pytest.param(request(3, 12, b"\xff\xff\xff\xff\x0f", flexible=True), id="a lying compact count"),
        pytest.param(request(0, 7, bytes(5)), id="a produce request cut off"),
        pytest.param(request(1, 11, bytes(5)), id="a fetch request cut off"),
    ],
)
def test_what_is_not_a_request_closes_its_connection_only(servers: str, data: bytes) -> None:
    with connect(servers) as good, connect(servers) as bad:
        bad.sendall(data)
        assert closed_by_peer(bad)
        good.sendall(request(18, 0))
        assert len(good.recv(4)) == 4


def test_random_bytes_do_not_trouble_the_others(servers: str) -> None:
    rng = random.Random(7)
    client = CLIENTS["kafka-python"]
    for _ in range(100):
        with connect(servers) as bad:
            bad.sendall(rng.randbytes(rng.choice([1, 3, 4, 8, 64, 5000])))
    for _ in range(100):  # a whole frame of random bytes behind a header that is right
        key, version = rng.choice([0, 1, 2, 3, 8, 9, 10, 18, 19, 20, 22]), rng.choice([1, 4, 7, 9, 12])
        with connect(servers) as bad:
            bad.sendall(request(key, version, rng.randbytes(rng.choice([0, 1, 10, 200]))))
    topic = "after-noise"
    client.produce(servers, topic, [RECORD])
    assert client.consume(servers, topic, 1) == [RECORD]


def test_a_request_that_comes_in_pieces_is_answered(servers: str) -> None:
    with connect(servers) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request(18, 0):
            slow.sendall(bytes([byte]))
        (size,) = struct.unpack(">i", slow.recv(4))
        assert size > 10


def test_requests_sent_at_once_are_answered_in_order(servers: str) -> None:
    frames = []
    for number in range(50):
        frame = bytearray()
        framing.write_request_header(frame, 18, 0, number, "test", flexible=False)
        frames.append(struct.pack(">i", len(frame)) + frame)
    with connect(servers) as eager:
        eager.sendall(b"".join(frames))
        received = eager.makefile("rb")
        for number in range(50):
            (size,) = struct.unpack(">i", received.read(4))
            body = received.read(size)
            assert struct.unpack_from(">i", body) == (number,)


def test_an_unknown_api_versions_version_is_answered_in_v0_with_code_35(servers: str) -> None:
    with connect(servers) as newer:
        newer.sendall(request(18, 99, bytes(30), flexible=True))
        received = newer.makefile("rb")
        (size,) = struct.unpack(">i", received.read(4))
        body = received.read(size)
        correlation_id, code, count = struct.unpack_from(">ihi", body)
        assert (correlation_id, code) == (1, 35)
        assert len(body) == 10 + 6 * count
