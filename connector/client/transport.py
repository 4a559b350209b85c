"""The bytes of a connection, plain or in TLS: all of them or an error, and none later than asked for.

Errors are OSError, TimeoutError among them, and EOFError where the peer has ended it. A timeout leaves the stream
without a place from which it could be read on.
"""

import contextlib
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from pylog.broker_lite.protocol.wire import Buffer

_IOV_MAX = 1024
_TIMEVAL = struct.Struct("@ll")


class Transport(Protocol):
    def send(self, buffers: Sequence[Buffer], timeout_ms: int) -> None:
        """Every byte of every buffer, one behind the other; `timeout_ms` is how long nothing may move."""

    def send_some(self, pending: deque[memoryview]) -> None:
        """What is taken at once; those bytes are gone from `pending`."""

    def fill(self, target: memoryview, deadline: float) -> None:
        """All of `target`, by the clock `time.monotonic`."""

    def fileno(self) -> int: ...

    def has_more(self) -> bool:
        """Whether there is something to read of which the socket itself does not tell."""

    def is_readable(self) -> bool:
        """Whether there is something to read at once, as far as can be told without reading it."""

    def is_quiet(self) -> bool:
        """Whether it is open and nothing stands in it to be read."""

    def close(self) -> None:
        """Only this process's handle is closed, without a shutdown that a parent or a child would feel."""


class PlainTransport:
    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)  # from here on the kernel's timeouts hold
        self._socket = sock
        self._timeout_ms = {socket.SO_RCVTIMEO: 0, socket.SO_SNDTIMEO: 0}

    def send(self, buffers: Sequence[Buffer], timeout_ms: int) -> None:
        self._set_timeout(socket.SO_SNDTIMEO, timeout_ms)
        pending: deque[memoryview] = deque(memoryview(buffer) for buffer in buffers if len(buffer))
        try:
            while pending:
                self._send_once(pending, 0)
        except BlockingIOError:
            raise TimeoutError from None

    def send_some(self, pending: deque[memoryview]) -> None:
        with contextlib.suppress(BlockingIOError):
            while pending:
                self._send_once(pending, socket.MSG_DONTWAIT)

    def _send_once(self, pending: deque[memoryview], flags: int) -> None:
        sent = self._socket.sendmsg(list(islice(pending, _IOV_MAX)), (), flags)
        while sent:
            if sent < len(pending[0]):
                pending[0] = pending[0][sent:]
                break
            sent -= len(pending.popleft())

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_more(self) -> bool:
        return False

    def fill(self, target: memoryview, deadline: float) -> None:
        position, end = 0, len(target)
        while position < end:
            self._set_timeout(socket.SO_RCVTIMEO, max(1, int((deadline - time.monotonic()) * 1000)))
            try:
                received = self._socket.recv_into(target[position:], 0, socket.MSG_WAITALL)
            except BlockingIOError:
                raise TimeoutError from None
            if received == 0:
                raise EOFError
            position += received
            if position < end and time.monotonic() >= deadline:
                raise TimeoutError

    def _set_timeout(self, option: int, timeout_ms: int) -> None:
        # A kernel timeout on a blocking socket: with `settimeout` every call would cost a poll() first, and
        # MSG_WAITALL (a whole frame in one call, outside the GIL) would not wait.
        if self._timeout_ms[option] != timeout_ms:
            self._socket.setsockopt(
                socket.SOL_SOCKET, option, _TIMEVAL.pack(timeout_ms // 1000, timeout_ms % 1000 * 1000)
            )
            self._timeout_ms[option] = timeout_ms

    def is_readable(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._peek())
        return False

    def is_quiet(self) -> bool:
        try:
            # Readable while nothing is expected: the broker closed it (b""), or its answers are out of step.
            self._peek()
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _peek(self) -> bytes:
        return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)

    def close(self) -> None:
        self._socket.close()


class TlsTransport:
    """Over a socket whose handshake is done. TLS has records of its own, so there is nothing to gain from the kernel's
    gathering and waiting; and what stands in the socket may be for TLS alone, so that only reading can tell."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock

    def send(self, buffers: Sequence[Buffer], timeout_ms: int) -> None:
        self._socket.settimeout(timeout_ms / 1000)
        try:
            self._socket.sendall(b"".join(buffers))
        except (ConnectionError, ssl.SSLEOFError):
            self._socket.settimeout(0)
            with contextlib.suppress(ConnectionError, ssl.SSLEOFError, ssl.SSLWantReadError):
                self._socket.recv(1)  # the peer may have said why it closed: that comes as an error of its own
            raise

    def send_some(self, pending: deque[memoryview]) -> None:
        self._socket.settimeout(0)
        with contextlib.suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
            while pending:
                sent = self._socket.send(pending[0])
                if sent < len(pending[0]):
                    pending[0] = pending[0][sent:]
                else:
                    pending.popleft()

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_more(self) -> bool:
        return self._socket.pending() > 0

    def fill(self, target: memoryview, deadline: float) -> None:
        position, end = 0, len(target)
        while position < end:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            received = self._socket.recv_into(target[position:])
            if received == 0:
                raise EOFError
            position += received

    def is_readable(self) -> bool:
        if self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def is_quiet(self) -> bool:
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except ssl.SSLWantReadError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self._socket.close()
