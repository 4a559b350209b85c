"""A TCP proxy before any broker of one node, known by its address alone: what clients ask is noted, and passes.

Answers to Metadata say that the broker is here, so that clients come this way again. Produce requests pass as
`manner` says."""

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from enum import Enum, auto
from typing import NamedTuple

from pylog.broker_lite.protocol import framing, metadata, produce, wire
from pylog.broker_lite.protocol.spec import Api
from pylog.connector.client.config import parse_addresses

PRODUCE, METADATA, PRODUCER_ID = produce.SPEC.key, metadata.SPEC.key, 22
HOLD_SECONDS = 0.3


class Manner(Enum):
    PASS = auto()
    HOLD = auto()  # what is answered is passed on `HOLD_SECONDS` after it was asked
    SILENCE = auto()  # the broker is not asked, and nobody is answered
    CUT = auto()  # the connection ends with the request


class Asked(NamedTuple):
    api: int
    client_id: str | None
    connection: int  # by number
    size_bytes: int
    produce: produce.ProduceRequest | None
    in_flight: int  # Produce requests of this connection without an answer, this one among them


class _Expected(NamedTuple):
    api: int
    version: int
    passes_at: float


class WatchingProxy:
    """`with WatchingProxy(bootstrap_servers) as proxy: proxy.bootstrap_servers`."""

    def __init__(self, target: str) -> None:
        (self._target,) = parse_addresses(target)
        self.manner = Manner.PASS
        self.asked: list[Asked] = []
        self.connections_count = 0
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def produced(self) -> list[Asked]:
        return self.of(PRODUCE)

    def of(self, api: int) -> list[Asked]:
        return [one for one in self.asked if one.api == api]

    def __enter__(self) -> "WatchingProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *list(self._open)):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections_count += 1
                threading.Thread(target=self._serve, args=(client, self.connections_count), daemon=True).start()

    def _serve(self, client: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, EOFError), client, socket.create_connection(self._target) as broker:
            self._open |= {client, broker}
            _Passage(self, client, broker, number).run()


class _Passage:
    """One connection. Its answers pass in a thread of their own, so that several requests may be under way."""

    def __init__(self, proxy: WatchingProxy, client: socket.socket, broker: socket.socket, number: int) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._number = number
        self._expected: deque[_Expected] = deque()

    def run(self) -> None:
        answers = threading.Thread(target=self._pass_answers, daemon=True)
        answers.start()
        try:
            while self._pass_request():
                pass
        finally:
            for one in (self._client, self._broker):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            answers.join()

    def _pass_request(self) -> bool:
        frame = _read_frame(self._client)
        header = framing.read_request_header(frame)
        manner = self._proxy.manner if header.api_key == PRODUCE else Manner.PASS
        asked = self._noted(frame, header)
        if manner is Manner.CUT:
            return False
        if asked.produce is None or asked.produce.acks:
            passes_at = time.monotonic() + HOLD_SECONDS if manner is Manner.HOLD else 0.0
            self._expected.append(_Expected(header.api_key, header.api_version, passes_at))
        if manner is not Manner.SILENCE:
            _send(self._broker, frame)
        return True

    def _noted(self, frame: bytes, header: framing.RequestHeader) -> Asked:
        wanted, in_flight = None, 0
        if header.api_key == PRODUCE:
            wanted = produce.decode_request(frame[_body(frame, header, produce.SPEC) :], header.api_version)
            in_flight = 1 + sum(expected.api == PRODUCE for expected in list(self._expected))
        asked = Asked(header.api_key, header.client_id, self._number, len(frame), wanted, in_flight)
        self._proxy.asked.append(asked)
        return asked

    def _pass_answers(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _read_frame(self._broker)
                expected = self._expected[0]
                if expected.api == METADATA:
                    frame = self._told_of_here(frame, expected.version)
                time.sleep(max(0.0, expected.passes_at - time.monotonic()))
                self._expected.popleft()
                _send(self._client, frame)

    def _told_of_here(self, frame: bytes, version: int) -> bytes:
        _, start = framing.read_response_header(frame, METADATA, flexible=metadata.SPEC.is_flexible(version))
        answer = metadata.SPEC.decode_response(frame[start:], version)
        for broker in answer.brokers:
            broker.host, broker.port = "127.0.0.1", self._proxy.port
        return frame[:start] + metadata.SPEC.encode_response(answer, version)


def _body(frame: bytes, header: framing.RequestHeader, spec: Api) -> int:
    """Where it begins."""
    return wire.skip_tags(frame, header.body_start) if spec.is_flexible(header.api_version) else header.body_start


def _send(peer: socket.socket, frame: bytes) -> None:
    peer.sendall(struct.pack(">i", len(frame)) + frame)


def _read_frame(peer: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _read(peer, 4))
    return _read(peer, size)


def _read(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
