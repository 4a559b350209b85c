"""Connections within this machine are not paced; others are left to the system."""

import socket
import struct
import sys

import pytest

from pylog.broker_lite.acceptor import unpace
from pylog.broker_lite.client import Client
from pylog.broker_lite.connection import Answer
from tests.support.connected import Connected, connected
from tests.support.wire_clients import WireClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a connection choose")


@pytest.mark.parametrize(
    ("host", "is_changed"), [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("192.0.2.7", False)]
)
def test_only_what_stays_on_this_machine_is_unpaced(host: str, is_changed: bool) -> None:
    with socket.socket() as one:
        before = control_of(one)
        unpace(one, host)
        assert control_of(one) == (b"reno" if is_changed else before)


def test_a_connection_that_is_accepted_is_unpaced() -> None:
    def echo(frame: memoryview, client: Client) -> Answer:
        return [struct.pack(">i", len(frame)), bytes(frame)]

    def controls(served: Connected) -> list[bytes]:
        sockets = [one._transport.get_extra_info("socket") for one in served.connections._all]
        return [control_of(one) for one in sockets]

    with connected(echo) as served, WireClient(served.bootstrap_servers) as client:
        assert client.ask(struct.pack(">i", 5) + b"hello") == b"hello"
        assert served.on_loop(lambda: controls(served)) == [b"reno"]


def control_of(connection: socket.socket) -> bytes:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
