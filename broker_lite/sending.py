"""How an answer gets to its client: small parts in one write, records straight from their file, and never much more
than the client takes.

Of what is sent from a file it is asked first, piece by piece, whether it is in memory. What is not, a thread reads.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from pylog.broker_lite import cold
from pylog.storage.log import FileSlice
from pylog.storage.ports import NOT_WAITING, WouldWait

Parts = list[bytes | bytearray | FileSlice]

_SENDFILE_BYTES_MIN = 48 * 1024  # below this one read and one write are cheaper than a sendfile
_SENDFILE_BYTES_MAX = 2 << 20  # at once: as much is read ahead for a client that may not take it
_WRITE_BYTES = 256 * 1024  # of small parts, before the client must have taken some


class Sender:
    __slots__ = ("_drained", "_progressed", "_transport", "is_in_file", "is_lost", "is_paused")

    def __init__(self, transport: asyncio.Transport, progressed: Callable[[], None]) -> None:
        """`progressed` is told when the client has taken something."""
        self._transport = transport
        self._progressed = progressed
        self._drained: asyncio.Future[None] | None = None
        self.is_paused = False  # the client has not taken what was written
        self.is_lost = False
        self.is_in_file = False  # the kernel sends; the socket must not be closed before that is cancelled

    def resume(self) -> None:
        self.is_paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def lose(self) -> None:
        self.is_lost = True
        self.resume()

    async def send(self, parts: Parts) -> None:
        pending = bytearray()
        for part in parts:
            if isinstance(part, FileSlice):
                if part.length >= _SENDFILE_BYTES_MIN:
                    self._transport.write(pending)
                    pending = bytearray()
                    await self._send_file(part)
                    continue
                pending += await _read(part)
            else:
                pending += part
            if len(pending) >= _WRITE_BYTES:
                self._transport.write(pending)
                pending = bytearray()
                await self._client_takes_some()
        self._transport.write(pending)

    async def _send_file(self, part: FileSlice) -> None:
        loop = asyncio.get_running_loop()
        file, position, end = part.file, part.position, part.position + part.length
        while position < end:
            count = min(end - position, _SENDFILE_BYTES_MAX)
            if not file.is_in_memory(position, count):
                await cold.waited(file.read_ahead, position, count)
            self.is_in_file = True
            try:
                sent = await loop.sendfile(self._transport, file, position, count)  # type: ignore[arg-type]
            finally:
                self.is_in_file = False
            if sent != count:
                raise OSError(f"{count - sent} bytes are missing at the end of {file.path}")
            position += count
            self._progressed()

    async def _client_takes_some(self) -> None:
        if self.is_paused:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        if self.is_lost:
            raise ConnectionResetError("in the middle of an answer")


def together(parts: Parts) -> bytes | None:
    """The whole answer, if it is small and can be had without waiting; None: it is for a task to send."""
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


async def _read(part: FileSlice) -> bytes:
    try:
        with NOT_WAITING:
            return _bytes_of(part)
    except WouldWait as read:
        await cold.waited(read.wait)
    return _bytes_of(part)


def _bytes_of(part: FileSlice) -> bytes:
    data = part.file.read_at(part.position, part.length)
    if len(data) != part.length:
        raise OSError(f"{part.length - len(data)} bytes are missing at the end of {part.file.path}")
    return data
