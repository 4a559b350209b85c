"""One client connection: frames in, answers out, one request at a time and in order.

As in Kafka, the next request of a connection is taken up when the last one is answered; what a
client sends meanwhile waits in one bounded buffer and then in the socket, so a client that never
reads, or never stops sending, holds its own memory and nobody else's.

A frame is received straight into the buffer that its records are written to disk from. A handler
may use views of that buffer until it returns; what it needs after its first `await` it copies.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TypeGuard, cast

from pylog.broker_lite.protocol.framing import SIZE_BYTES
from pylog.broker_lite.protocol.wire import I32, MalformedFrame
from pylog.storage.log import FileSlice

logger = logging.getLogger(__name__)

Parts = list[bytes | bytearray | FileSlice]
Answer = Parts | None | Awaitable[Parts | None]  # None: the client wants no answer (acks=0)

_RECEIVE_BYTES = 64 * 1024
_SENDFILE_BYTES_MIN = 48 * 1024  # below this one read and one write are cheaper than a sendfile
_TOGETHER_BYTES = 4 * 1024  # answers up to this many bytes leave in one system call, if their requests came in one


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self, answer: Callable[[memoryview, str], Answer], request_bytes_max: int, connections: set["Connection"]
    ) -> None:
        self._answer = answer
        self._request_bytes_max = request_bytes_max
        self._connections = connections
        self._small = bytearray(_RECEIVE_BYTES)
        self._buffer = self._small
        self._start = 0  # of the next frame, its size included
        self._end = 0  # of what was received
        self._answers = bytearray()  # that have not been written yet
        self._task: asyncio.Task[None] | None = None
        self._write_paused = False
        self._peer = "?"
        self._host = "?"

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self._host, self._peer = f"/{address[0]}", f"{address[0]}:{address[1]}"
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, count: int) -> None:
        self._end += count
        self._advance()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._advance()

    # Frames

    @property
    def idle(self) -> bool:
        return self._task is None and not self._write_paused

    def _advance(self) -> None:
        """Take up whole frames while nothing is under way, then make room for more."""
        while self.idle and not self._transport.is_closing():
            frame = self._next_frame()
            if frame is None:
                break
            self._take_up(frame)
        self._write_answers()
        if self._transport.is_closing():
            return
        if self._end == len(self._buffer):
            self._transport.pause_reading()  # full: the rest waits in the socket
        elif self.idle:
            self._transport.resume_reading()

    def _next_frame(self) -> memoryview | None:
        received = self._end - self._start
        if received >= SIZE_BYTES:
            (size,) = I32.unpack_from(self._buffer, self._start)
            if not 0 < size <= self._request_bytes_max:
                self._close(f"announced a request of {size} bytes (socket.request.max.bytes={self._request_bytes_max})")
                return None
            if received >= SIZE_BYTES + size:
                start = self._start + SIZE_BYTES
                self._start = start + size
                return memoryview(self._buffer)[start : self._start]
            if SIZE_BYTES + size > len(self._buffer):  # a buffer of its own, of just its size
                large = bytearray(SIZE_BYTES + size)
                large[:received] = memoryview(self._buffer)[self._start : self._end]
                self._buffer, self._start, self._end = large, 0, received
                return None
        self._compact(received)
        return None

    def _compact(self, received: int) -> None:
        if self._start:
            self._small[:received] = bytes(memoryview(self._buffer)[self._start : self._end])
            self._buffer, self._start, self._end = self._small, 0, received

    def _take_up(self, frame: memoryview) -> None:
        try:
            answer = self._answer(frame, self._host)
            if answer is None:
                return
            if not isinstance(answer, list):
                self._task = asyncio.get_running_loop().create_task(self._send_later(answer))
            elif any(_is_large(part) for part in answer):
                self._task = asyncio.get_running_loop().create_task(self._send(answer))
            else:
                self._answers += b"".join([_bytes_of(part) for part in answer])
                if len(self._answers) >= _TOGETHER_BYTES:
                    self._write_answers()
        except MalformedFrame as error:
            self._close(f"sent what is not a request: {error}")
        except Exception:
            logger.exception("a request of %s failed", self._peer)
            self._write_answers()  # of those before it
            self._transport.abort()

    def _write_answers(self) -> None:
        if self._answers:
            answers, self._answers = self._answers, bytearray()
            self._transport.write(answers)

    # Answers that take a while

    async def _send_later(self, answer: Awaitable[Parts | None]) -> None:
        try:
            parts = await answer
        except Exception:
            logger.exception("a request of %s failed", self._peer)
            self._transport.abort()
            return
        await self._send(parts or [])

    async def _send(self, parts: Parts) -> None:
        loop = asyncio.get_running_loop()
        pending: list[bytes | bytearray] = []
        try:
            for part in parts:
                if not _is_large(part):
                    pending.append(_bytes_of(part))
                    continue
                self._transport.write(b"".join(pending))
                pending.clear()
                sent = await loop.sendfile(self._transport, part.file, part.position, part.length)  # type: ignore[arg-type]
                if sent != part.length:
                    raise OSError(f"{part.length - sent} bytes are missing at the end of {part.file}")
            self._transport.write(b"".join(pending))
        except (ConnectionError, RuntimeError) as error:  # RuntimeError: the transport is closing
            logger.debug("%s went away: %s", self._peer, error)
            self._transport.abort()
        except Exception:  # half an answer is out: nothing sensible can follow it
            logger.exception("an answer to %s could not be sent", self._peer)
            self._transport.abort()
        finally:
            self._task = None
        self._advance()

    def _close(self, why: str) -> None:
        logger.warning("closed the connection of %s, which %s", self._peer, why)
        self._write_answers()  # of what came before it
        self._transport.abort()

    def close(self) -> None:
        """Send what is written, then close."""
        self._transport.close()


def _is_large(part: bytes | bytearray | FileSlice) -> TypeGuard[FileSlice]:
    return isinstance(part, FileSlice) and part.length >= _SENDFILE_BYTES_MIN


def _bytes_of(part: bytes | bytearray | FileSlice) -> bytes | bytearray:
    if isinstance(part, FileSlice):
        data = os.pread(part.file.fileno(), part.length, part.position)
        if len(data) != part.length:
            raise OSError(f"{part.length - len(data)} bytes are missing at the end of {part.file}")
        return data
    return part
