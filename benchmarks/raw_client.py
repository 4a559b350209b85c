"""Many connections to one broker, each with one request under way: as little client as can be, so the broker is seen.

The frames are made beforehand; of an answer only its size is looked at, save for what the caller checks."""

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pylog.broker_lite.protocol import framing
from pylog.broker_lite.protocol.spec import Api

ANSWER_SECONDS_MAX = 60.0
_SIZE = struct.Struct(">i")
_CLIENT_ID = "benchmark"


class Driven(NamedTuple):
    seconds: float
    latencies_ms: list[float]
    last_answers: list[bytes]  # of each connection, without their size

    @property
    def requests_per_second(self) -> float:
        return len(self.latencies_ms) / self.seconds

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def frame(api: Api, version: int, body: bytes | bytearray) -> bytes:
    head = bytearray()
    framing.write_request_header(head, api.key, version, 1, _CLIENT_ID, flexible=api.is_flexible(version))
    return _SIZE.pack(len(head) + len(body)) + bytes(head) + bytes(body)


def body_of(api: Api, version: int, answer: bytes) -> bytes:
    return answer[framing.read_response_header(answer, api.key, flexible=api.is_flexible(version))[1] :]


@contextlib.contextmanager
def connections(bootstrap_servers: str, count: int) -> Iterator[list[socket.socket]]:
    host, port = bootstrap_servers.rsplit(":", 1)
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.append(connection)
        yield made


def drive(opened: Sequence[socket.socket], frames: Sequence[bytes], count: int) -> Driven:
    """`count` requests in all; a connection sends its frame, reads the answer and sends the frame again."""
    answers = [b""] * len(opened)
    sent_at = [0.0] * len(opened)
    latencies_ms: list[float] = []
    left = count
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        for index, connection in enumerate(opened[:count]):
            selector.register(connection, selectors.EVENT_READ, index)
            sent_at[index] = time.perf_counter()
            connection.sendall(frames[index])
            left -= 1
        while len(latencies_ms) < count:
            ready = selector.select(ANSWER_SECONDS_MAX)
            if not ready:
                raise RuntimeError(f"{len(latencies_ms)} of {count} answers came, then none")
            for key, _ in ready:
                index, connection = key.data, opened[key.data]
                answers[index] = read_answer(connection)
                now = time.perf_counter()
                latencies_ms.append((now - sent_at[index]) * 1000)
                if left:
                    sent_at[index] = now
                    connection.sendall(frames[index])
                    left -= 1
        return Driven(time.perf_counter() - began, latencies_ms, answers)


def ask(connection: socket.socket, api: Any, request: Any, version: int) -> Any:
    """One request of an API whose messages are declared, and its decoded answer."""
    connection.sendall(frame(api, version, api.encode_request(request, version)))
    return api.decode_response(body_of(api, version, read_answer(connection)), version)


def read_answer(connection: socket.socket) -> bytes:
    """Small answers come whole: one call reads them."""
    data = connection.recv(1 << 16)
    while len(data) < _SIZE.size or len(data) < _SIZE.size + _SIZE.unpack_from(data)[0]:
        more = connection.recv(1 << 16)
        if not more:
            raise ConnectionError("closed before the answer was whole")
        data += more
    return data[_SIZE.size :]
