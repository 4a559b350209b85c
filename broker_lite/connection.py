"""One client connection: frames in, answers out, one request at a time and in order.

As in Kafka, the next request of a connection is taken up when the last one is answered; what a client sends meanwhile
waits in a bounded buffer and then in the socket, so a client that never reads, or never stops sending, holds its own
memory and nobody else's.

All connections receive into one buffer. A frame that arrives whole is handled there, before anybody else receives; only
what is left over moves into memory of the connection's own, which grows with the bytes that come and not with what was
announced. So a handler may use views of its frame until it returns, and no longer: what it needs later, also after its
first `await`, it copies.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from pylog.broker_lite.client import Client
from pylog.broker_lite.foreign_protocols import looks_like
from pylog.broker_lite.protocol.framing import SIZE_BYTES
from pylog.broker_lite.protocol.wire import I32, MalformedFrame
from pylog.broker_lite.sending import Parts, Sender, together

if TYPE_CHECKING:
    from pylog.broker_lite.connections import Connections

logger = logging.getLogger(__name__)

__all__ = ["Answer", "Connection", "Parts", "Unheard"]

Answer = Parts | None | Awaitable[Parts | None]  # None: the client wants no answer (acks=0)


class Unheard(Exception):
    """Something went wrong, and the client wants no answer (acks=0): it hears of it when its connection is closed."""


_AHEAD_BYTES = 64 * 1024  # of requests that wait for the one before them; more stays in the socket
_SMALL_BYTES = 1024  # a request of this size may always come, however short memory is: a heartbeat is one
_LARGE_BYTES = 64 * 1024  # to make memory for more takes as long as to receive what it is for
_GROWTH = 4  # a frame gets so many times the memory of what has come of it
_TOGETHER_BYTES = 4 * 1024  # answers up to this many bytes leave in one system call, if their requests came in one
_PRODUCE = b"\0\0"  # its key


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_all",
        "_answer",
        "_answers",
        "_buffer",
        "_client",
        "_counted_bytes",
        "_end",
        "_ended",
        "_expected_bytes",
        "_finishing",
        "_lost",
        "_peer",
        "_sender",
        "_start",
        "_starved",
        "_task",
        "_transport",
        "_under_way_bytes",
        "_writes_records",
        "address",
        "frame_since",
        "is_answering",
        "touched",
    )

    def __init__(
        self, answer: Callable[[memoryview, Client], Answer], all_connections: "Connections", address: tuple[str, int]
    ) -> None:
        self._answer = answer
        self._all = all_connections
        self.address = address[0]
        self._client, self._peer = Client(f"/{address[0]}"), f"{address[0]}:{address[1]}"
        self._buffer: bytearray | None = None  # between two calls of asyncio's it is never the shared one
        self._start = 0  # of the next frame, its size included
        self._end = 0  # of what was received
        self._expected_bytes = 0  # of the next frame, where the last one was large: it is received where it stays
        self._counted_bytes = 0  # of the buffer, if it is our own
        self._under_way_bytes = 0  # of the request that is worked on
        self._answers = bytearray()  # that have not been written yet
        self._task: asyncio.Task[None] | None = None
        self._writes_records = False  # the task: it goes on though the client has gone
        self._starved = False  # stopped reading until there is memory
        self._finishing = False  # no more is read; what has come whole is answered
        self._ended = False  # by us: nothing more is taken up
        self._lost = False
        self.is_answering = False  # the client waits for the broker
        self.touched = self.frame_since = all_connections.tick

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sender = Sender(self._transport, self._progressed)
        self._all.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._all.remove(self)
        self._sender.lose()
        if self._task is None:
            self._advance()
        elif not self._writes_records:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer is None:
            if self._all.memory.is_short:  # the size alone tells whether the rest can be read
                return self._all.size_view
            expects = self._expected_bytes and self._task is None
            spare = self._all.spare_of(self._expected_bytes) if expects else None
            if spare is None:
                return self._all.received_view
            self._own(spare, 0)
            return memoryview(spare)
        if self._end == len(self._buffer):  # requests that wait for the one before them
            return self._all.received_view
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, count: int) -> None:
        self.touched = self._all.tick
        if self._buffer is None:
            self._buffer, self._start, self._end = self._all.received, 0, count
        elif self._end == len(self._buffer):
            self._own(self._buffer[self._start :] + self._all.received_view[:count])
        else:
            self._end += count
        self._advance()

    def pause_writing(self) -> None:
        self._sender.is_paused = True

    def resume_writing(self) -> None:
        self._progressed()
        self._sender.resume()
        self._advance()

    def _progressed(self) -> None:
        self.touched = self._all.tick

    # Frames

    @property
    def is_idle(self) -> bool:
        return self._task is None and not self._sender.is_paused

    @property
    def held_bytes(self) -> int:
        """Of a request that has not come whole."""
        return self._counted_bytes if self._task is None and not self._starved else 0

    def _advance(self) -> None:
        """Take up whole frames while nothing is under way, then keep what is left and make room for more."""
        while self._start < self._end and self._task is None and not self._sender.is_paused and not self._ended:
            frame = self._next_frame()
            if frame is None:
                break
            self._take_up(frame)
        if self._answers:
            self._write_answers()
        if self._ended or (self._lost and self._task is None):
            self._release()
        elif not self._lost:
            self._keep()

    def _next_frame(self) -> memoryview | None:
        received = self._end - self._start - SIZE_BYTES
        if self._buffer is None or received < 0:
            return None
        (size,) = I32.unpack_from(self._buffer, self._start)
        if not 0 < size <= self._all.request_bytes_max:
            hint = looks_like(bytes(self._buffer[self._start : self._start + SIZE_BYTES]))
            allowed = f"socket.request.max.bytes={self._all.request_bytes_max}"
            self._close(f"announced a request of {size} bytes ({allowed}){hint}")
            return None
        if received < size:
            return None
        start = self._start + SIZE_BYTES
        self._start = start + size
        frame = memoryview(self._buffer)[start : self._start]
        if self._lost and frame[:2] != _PRODUCE:  # a producer that wants no answer sends, and goes
            return None
        return frame

    def _take_up(self, frame: memoryview) -> None:
        try:
            answer = self._answer(frame, self._client)
            if answer is None:
                return
            if isinstance(answer, list):
                whole = together(answer)
                if whole is not None:
                    self._answers += whole
                    if len(self._answers) >= _TOGETHER_BYTES:
                        self._write_answers()
                    return
                self._write_answers()
                left = self._sender.send_some(answer)
                if left:
                    self._writes_records = False
                    self._task = asyncio.get_running_loop().create_task(self._send_now(left))
            else:
                self._writes_records = frame[:2] == _PRODUCE
                self._under_way_bytes = len(frame)
                self._all.memory.take_anyway(len(frame))
                self._task = asyncio.get_running_loop().create_task(self._send_later(answer))
        except MalformedFrame as error:
            self._close(f"sent what is not a request: {error}")
        except Unheard as error:
            self._close(f"wants no answers, and has to hear: {error}")
        except ConnectionError as error:
            logger.debug("%s went away: %s", self._peer, error)
            self._abort()
        except Exception:
            self._fail()

    # Memory

    def _keep(self) -> None:
        """What is left of the buffer stays here, in memory of our own; reading goes on where there is room for more."""
        left = self._end - self._start
        if not left:
            self._release()
        elif not self.is_idle:  # whole requests, perhaps, that wait
            if self._buffer is self._all.received:
                self._own(self._buffer[self._start : self._end])
            if left >= _AHEAD_BYTES or self._all.memory.is_short:
                self._transport.pause_reading()
                return
        elif self._finishing:
            self._release()
        elif not self._has_room(left):
            self._transport.pause_reading()
            return
        if not self._finishing:
            self._transport.resume_reading()
        elif self.is_idle and self._buffer is None:
            self._transport.close()

    def _has_room(self, left: int) -> bool:
        """For more of the frame of which so many bytes have come; False: not now."""
        buffer, size = self._buffer, _SMALL_BYTES
        assert buffer is not None
        if left >= SIZE_BYTES:
            size = SIZE_BYTES + I32.unpack_from(buffer, self._start)[0]
            self._expected_bytes = size if size > _LARGE_BYTES else 0
        wanted = min(size, max(_SMALL_BYTES, _GROWTH * left))
        is_own = buffer is not self._all.received
        fits = is_own and len(buffer) <= _GROWTH * wanted  # or it is for others, who need it more
        if fits and self._start == 0 and self._end < len(buffer):
            return True
        if not is_own or self._start:  # a frame begins
            self.frame_since = self._all.tick
            self._all.memory.no_more(self)
        if fits and wanted <= len(buffer):
            buffer[:left] = buffer[self._start : self._end]
            self._start, self._end = 0, left
            return True
        if wanted > _SMALL_BYTES and wanted > self._counted_bytes:
            if not self._all.memory.take(self, wanted - self._counted_bytes):
                self._starved = True
                if not is_own:
                    self._own(buffer[self._start : self._end])
                return False
            self._counted_bytes = wanted
        grown = (self._all.spare_of(wanted) if wanted > _LARGE_BYTES else None) or bytearray(wanted)
        grown[:left] = memoryview(buffer)[self._start : self._end]
        if is_own and len(buffer) > _LARGE_BYTES:
            self._all.keep_spare(buffer)
        self._own(grown, left)
        return True

    def _own(self, buffer: bytearray, end: int | None = None) -> None:
        more = len(buffer) - self._counted_bytes
        self._counted_bytes = len(buffer)
        if more >= 0:
            self._all.memory.take_anyway(more)
        else:
            self._all.memory.give_back(-more)
        self._buffer, self._start, self._end = buffer, 0, len(buffer) if end is None else end

    def _release(self) -> None:
        buffer, self._buffer = self._buffer, None
        self._start = self._end = 0
        counted, self._counted_bytes = self._counted_bytes, 0
        if counted and buffer is not None:
            if counted > _LARGE_BYTES:
                self._all.keep_spare(buffer)
            self._all.memory.give_back(counted)
        if not self._under_way_bytes:
            self._all.memory.no_more(self)

    def _done(self) -> None:
        """The request that was worked on needs no memory any more."""
        count, self._under_way_bytes = self._under_way_bytes, 0
        self._all.memory.give_back(count)
        self._all.memory.no_more(self)

    def try_again(self) -> None:
        """There may be memory."""
        self._starved = False
        self.frame_since = self._all.tick
        if not self._ended and not self._lost:
            self._keep()

    # Answers

    def _write_answers(self) -> None:
        answers, self._answers = self._answers, bytearray()
        if not self._lost:
            self._transport.write(answers)

    async def _send_later(self, answer: Awaitable[Parts | None]) -> None:
        parts: Parts | None = None
        self.is_answering = True
        try:
            parts = await answer
        except asyncio.CancelledError:
            logger.debug("%s did not wait for its answer", self._peer)
        except MalformedFrame as error:
            self._close(f"sent what is not a request: {error}")
        except Unheard as error:
            self._close(f"wants no answers, and has to hear: {error}")
        except Exception:
            self._fail()
        self.is_answering = False
        self._done()
        await self._send_now(parts or [])

    async def _send_now(self, parts: Parts) -> None:
        try:
            if not self._lost and not self._ended:
                await self._sender.send(parts)
        except asyncio.CancelledError:  # the client has gone, or we have had enough of it
            self._abort()
        except (ConnectionError, RuntimeError) as error:  # RuntimeError: the transport is closing
            logger.debug("%s went away: %s", self._peer, error)
            self._abort()
        except Exception:  # half an answer is out: nothing sensible can follow it
            logger.exception("an answer to %s could not be sent", self._peer)
            self._abort()
        finally:
            self._task = None
            self.touched = self.frame_since = self._all.tick
            self._advance()

    # The end

    def finish(self) -> None:
        """Answer what has come whole, then close."""
        self._finishing = True
        self._transport.pause_reading()
        self._advance()

    def close_for(self, why: str) -> None:
        self._close(why)
        self._release()

    def abort(self) -> None:
        self._abort()
        self._release()

    def _close(self, why: str) -> None:
        logger.warning("closed the connection of %s, which %s", self._peer, why)
        self._write_answers()  # of what came before it
        self._abort()

    def _fail(self) -> None:
        logger.exception("a request of %s failed", self._peer)
        self._write_answers()  # of those before it
        self._abort()

    def _abort(self) -> None:
        self._ended = True
        self._transport.abort()
