"""A client that knows frames and nothing else: what it sends, when, and whether it reads is the test's choice."""

import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType

from pylog.broker_lite.protocol import metadata
from pylog.broker_lite.protocol.framing import write_request_header


def frame(key: int, version: int, body: bytes | bytearray = b"", *, flexible: bool = False, number: int = 1) -> bytes:
    """`number` is the correlation id. The tags of a flexible header are put in."""
    out = bytearray()
    write_request_header(out, key, version, number, "test", flexible=flexible)
    out += body
    return struct.pack(">i", len(out)) + out


API_VERSIONS = frame(18, 0)


class WireClient:
    def __init__(self, bootstrap_servers: str, receive_buffer_bytes: int | None = None) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(30)
        self.socket.connect((host.strip("[]"), int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> bytes:
        """The next one, from its correlation id on."""
        (size,) = struct.unpack(">i", self._answers.read(4))
        return self._answers.read(size)

    def ask(self, data: bytes) -> bytes:
        self.send(data)
        return self.answer()

    def is_closed_by_peer(self) -> bool:
        """True when the broker ends the connection; an answer would be data."""
        try:
            return self._answers.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._answers.close()
        self.socket.close()

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def eventually(condition: Callable[[], bool], seconds_max: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def have_made_themselves(client: WireClient, *topics: str) -> None:
    """They are asked for until they are there."""
    wanted = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic) for topic in topics])
    asked = frame(3, 4, metadata.SPEC.encode_request(wanted, 4))

    def are_there() -> bool:
        answer = metadata.SPEC.decode_response(client.ask(asked)[4:], 4)
        return not any(topic.error_code for topic in answer.topics)

    assert eventually(are_there)


def memory_bytes(pid: int) -> int:
    """Resident, of a process."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def memory_peak_bytes(pid: int) -> int:
    """The most that was resident of a process."""
    with open(f"/proc/{pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
