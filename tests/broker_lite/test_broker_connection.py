"""A client that sends many requests at once gets every answer, in order, whatever comes behind them."""

import socket
import struct
from collections.abc import Iterator

import pytest

from pylog import Broker
from pylog.broker_lite.protocol import api_versions
from pylog.broker_lite.protocol.framing import write_request_header

ANSWERS_MANY = 200  # more bytes than are written in one go


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[socket.socket]:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connected:
        yield connected


def _request(correlation_id: int) -> bytes:
    out = bytearray()
    write_request_header(out, api_versions.SPEC.key, 0, correlation_id, None, flexible=False)
    return struct.pack(">i", len(out)) + out


def _correlation_ids(client: socket.socket, count: int) -> list[int]:
    with client.makefile("rb") as answers:
        return [struct.unpack(">i", answers.read(*struct.unpack(">i", answers.read(4)))[:4])[0] for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, ANSWERS_MANY])
def test_requests_that_come_together_are_answered_in_their_order(client: socket.socket, count: int) -> None:
    client.sendall(b"".join(map(_request, range(count))))
    assert _correlation_ids(client, count) == list(range(count))


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(struct.pack(">i", -1), id="a size that cannot be"),
        pytest.param(struct.pack(">ihhih", 10, 9999, 0, 0, -1), id="an API that nobody knows"),
    ],
)
def test_what_came_before_nonsense_is_answered_before_the_connection_closes(
    client: socket.socket, behind: bytes
) -> None:
    client.sendall(_request(1) + _request(2) + behind)
    assert _correlation_ids(client, 2) == [1, 2]
    assert _is_closed(client)


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
