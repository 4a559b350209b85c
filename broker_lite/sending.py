"""How an answer gets to its client: small parts in one write, records straight from their file, and never much more
than the client takes.

What the socket takes at once is sent at once; the transport is given a little of the rest, and says when that has gone.
Of what is sent from a file it is asked first, piece by piece, whether it is in memory. What is not, a thread reads.
"""

import asyncio
import os
from collections.abc import Callable
from typing import cast

from pylog.broker_lite import cold
from pylog.storage.log import FileSlice
from pylog.storage.ports import NOT_WAITING, WouldWait

Parts = list[bytes | bytearray | FileSlice]

_SENDFILE_BYTES_MIN = 48 * 1024  # below this one read and one write are cheaper than a sendfile
_AT_ONCE_BYTES = 2 << 20  # then others have their turn; as much is read ahead for a client that may not take it
_WRITE_BYTES = 256 * 1024  # of small parts, before the client must have taken some
_HINT_BYTES = 4 * 1024  # of a file, for the transport: when they have gone the socket has room again


class Sender:
    __slots__ = ("_drained", "_progressed", "_socket", "_transport", "is_lost", "is_paused")

    def __init__(self, transport: asyncio.Transport, progressed: Callable[[], None]) -> None:
        """`progressed` is told when the client has taken something."""
        transport.set_write_buffer_limits(high=0)  # nothing goes past what it has not sent
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        self._progressed = progressed
        self._drained: asyncio.Future[None] | None = None
        self.is_paused = False  # the client has not taken what was written
        self.is_lost = False

    def resume(self) -> None:
        self.is_paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def lose(self) -> None:
        self.is_lost = True
        self.resume()

    async def send(self, parts: Parts) -> None:
        was_read = False
        while parts := self.send_some(parts, was_read=was_read):
            was_read = False
            if self.is_paused:
                self._drained = asyncio.get_running_loop().create_future()
                await self._drained
            elif isinstance(first := parts[0], FileSlice) and not _is_in_memory(first):
                await cold.waited(first.file.read_ahead, first.position, min(first.length, _AT_ONCE_BYTES))
                was_read = True
            else:
                await asyncio.sleep(0)

    def send_some(self, parts: Parts, *, was_read: bool = False) -> Parts:
        """What is left to be sent: the client does not take it, others have waited long enough, or it is not in
        memory. With `was_read` the first part is sent in any case: where the system cannot tell, it never would be."""
        if self.is_lost or self._transport.is_closing():
            raise ConnectionResetError("in the middle of an answer")
        if self.is_paused:
            return parts
        pending, sent_bytes = bytearray(), 0
        for number, part in enumerate(parts):
            if isinstance(part, FileSlice):
                if sent_bytes >= _AT_ONCE_BYTES or not (was_read or _is_in_memory(part)):
                    self._transport.write(pending)
                    return parts[number:]
                was_read = False
                sent_bytes += part.length
                if part.length >= _SENDFILE_BYTES_MIN:
                    self._transport.write(pending)
                    pending = bytearray()
                    left = part if self.is_paused else self._send_file(part)
                    if left.length:
                        return [left, *parts[number + 1 :]]
                    continue
                pending += _bytes_of(part)
            else:
                pending += part
            if len(pending) >= _WRITE_BYTES:
                self._transport.write(pending)
                pending = bytearray()
                if self.is_paused:
                    return parts[number + 1 :]
        self._transport.write(pending)
        return []

    def _send_file(self, part: FileSlice) -> FileSlice:
        """What is left of it."""
        file, position, length, _ = part
        end = position + min(length, _AT_ONCE_BYTES)
        try:
            while position < end:
                count = os.sendfile(self._socket.fileno(), file.fileno(), position, end - position)
                if not count:
                    raise OSError(f"{end - position} bytes are missing at the end of {file.path}")
                position += count
        except BlockingIOError:
            hint = _bytes_of(part._replace(position=position, length=min(end - position, _HINT_BYTES)))
            self._transport.write(hint)
            position += len(hint)
        self._progressed()
        return part._replace(position=position, length=part.position + length - position)


def _is_in_memory(part: FileSlice) -> bool:
    """As much of it as is sent at once."""
    return part.file.is_in_memory(part.position, min(part.length, _AT_ONCE_BYTES))


def together(parts: Parts) -> bytes | None:
    """The whole answer, if it is small and can be had without waiting."""
    slices_bytes = 0
    for part in parts:
        if isinstance(part, FileSlice):
            slices_bytes += part.length
    if not slices_bytes:
        return b"".join(cast(list[bytes], parts))
    if slices_bytes >= _SENDFILE_BYTES_MIN:
        return None
    try:
        with NOT_WAITING:
            return b"".join([_bytes_of(part) if isinstance(part, FileSlice) else part for part in parts])
    except WouldWait:
        return None


def _bytes_of(part: FileSlice) -> bytes:
    data = part.file.read_at(part.position, part.length)
    if len(data) != part.length:
        raise OSError(f"{part.length - len(data)} bytes are missing at the end of {part.file.path}")
    return data
