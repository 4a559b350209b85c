"""Does a broker answer? Asked with ApiVersions v0, by hand: no client library, the same question for every broker."""

import socket
import struct
import time
from collections.abc import Callable, Sequence

CORRELATION_ID = 7
_REQUEST = struct.pack(">hhih", 18, 0, CORRELATION_ID, -1)  # api key, version, correlation id, no client id


def answers(address: str, timeout_s: float = 1.0) -> bool:
    """True if the address gives a whole, matching answer to ApiVersions within the time."""
    try:
        with _connected(address, timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            length, correlation_id, error_code = struct.unpack(">iih", _read_exactly(connection, 10))
            _read_exactly(connection, length - 6)
            return bool(correlation_id == CORRELATION_ID and error_code == 0)
    except OSError:
        return False


def accepts(address: str, timeout_s: float = 1.0) -> bool:
    """True if somebody listens there: all that can be asked without a certificate or a password."""
    try:
        _connected(address, timeout_s).close()
    except OSError:
        return False
    return True


def wait_until_answers(
    address: str, alive: Callable[[], bool], seconds_max: float = 60.0, *, also_open: Sequence[str] = ()
) -> bool:
    """Ask until there is an answer, and connections are taken at the other listeners (True), or the process is gone
    or the time is over (False)."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        if answers(address) and all(accepts(other) for other in also_open):
            return True
        if not alive():
            return False
        time.sleep(0.01)
    return False


def _connected(address: str, timeout_s: float) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=timeout_s)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("closed before the answer was whole")
        data += part
    return data
