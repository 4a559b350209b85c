"""As much of HTTP as a scraper or a health check needs, and no more: one GET (or HEAD) a connection, then it is closed.

Bounds: a request has so many bytes and so much time, an answer so much time to be taken, and there are so many
connections at once. The broker's loop serves it, so a page comes in pieces, with turns for others between them.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
CONNECTIONS_MAX = 32

_REQUEST = re.compile(rb"([!-~]+) (/[!-~]*) HTTP/1\.([01])\r\n")


class Page(NamedTuple):
    status: HTTPStatus
    content_type: str
    pieces: AsyncIterator[str]


Routes = Mapping[str, Callable[[], Page]]


def text_page(status: HTTPStatus, text: str, content_type: str = "text/plain; charset=utf-8") -> Page:
    async def pieces() -> AsyncIterator[str]:
        yield text

    return Page(status, content_type, pieces())


class HttpServer:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """The port, also where 0 was asked for."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=REQUEST_BYTES_MAX)
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # it went away, or took too long; or this server closes, of which asyncio's streams would complain
        except Exception:
            logger.exception("a page could not be made")
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            try:
                request = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                request = b""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            matched = _REQUEST.match(request)
            method, path, minor = matched.groups() if matched else (b"GET", b"", b"0")
            page, extra = self._page(method, path)
            await _send(writer, page, extra, with_body=method != b"HEAD", chunked=minor == b"1")

    def _page(self, method: bytes, path: bytes) -> tuple[Page, str]:
        if not path:
            return text_page(HTTPStatus.BAD_REQUEST, "This is an HTTP port: GET /metrics or /health.\n"), ""
        if method not in (b"GET", b"HEAD"):
            return text_page(HTTPStatus.METHOD_NOT_ALLOWED, "There is only GET.\n"), "Allow: GET, HEAD\r\n"
        make = self._routes.get(path.partition(b"?")[0].decode("ascii"))
        if make is None:
            return text_page(HTTPStatus.NOT_FOUND, f"There are {', '.join(self._routes)}.\n"), ""
        return make(), ""


async def _send(writer: asyncio.StreamWriter, page: Page, extra: str, *, with_body: bool, chunked: bool) -> None:
    """In chunks where the client knows them: an answer that breaks off does not look whole then."""
    transfer = "Transfer-Encoding: chunked\r\n" if chunked else ""
    writer.write(
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\nContent-Type: {page.content_type}\r\n{transfer}{extra}"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
    )
    if with_body:
        async for piece in page.pieces:
            data = piece.encode()
            if data:
                writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            await writer.drain()
            await asyncio.sleep(0)  # others have their turn
        if chunked:
            writer.write(b"0\r\n\r\n")
    await writer.drain()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
