"""The little HTTP that there is: what it answers, and what it refuses."""

import asyncio
import contextlib
from http import HTTPStatus

import pytest

from pylog.broker_lite.metrics import http
from pylog.broker_lite.metrics.http import HttpServer, Page, text_page

LONG = "x" * 1000
PIECES = 2000


def big() -> Page:
    async def pieces():
        for _ in range(PIECES):
            yield LONG

    return Page(HTTPStatus.OK, "text/plain", pieces())


def broken() -> Page:
    async def pieces():
        yield "half"
        raise ValueError("no more")

    return Page(HTTPStatus.OK, "text/plain", pieces())


ROUTES = {"/": lambda: text_page(HTTPStatus.OK, "hello\n"), "/big": big, "/broken": broken}


def asked(*requests: bytes, end: bool = False) -> list[bytes]:
    """The whole answers, each on a connection of its own."""

    async def one(port: int, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        if end:
            writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def main() -> list[bytes]:
        server = HttpServer(ROUTES)
        port = await server.start("127.0.0.1", 0)
        try:
            return [await one(port, request) for request in requests]
        finally:
            await server.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200, id="a page"),
        pytest.param(b"GET /?a=b HTTP/1.1\r\n\r\n", 200, id="a query, which means nothing"),
        pytest.param(b"GET /other HTTP/1.1\r\n\r\n", 404, id="no page"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405, id="not a GET"),
        pytest.param(b"GET / HTTP/2.0\r\n\r\n", 400, id="another version"),
        pytest.param(b"GET http://a/ HTTP/1.1\r\n\r\n", 400, id="a proxy's request"),
        pytest.param(b"\0\0\0\x13\0\x12\0\0\r\n\r\n", 400, id="a Kafka client"),
        pytest.param(b"GET /\xff HTTP/1.1\r\n\r\n", 400, id="not ASCII"),
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"a" * 10_000, 400, id="too long"),
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"a" * 10_000 + b"\r\n\r\n", 400, id="too long, with an end"),
    ],
)
def test_a_request_gets_its_status(request_, status):
    (answer,) = asked(request_)
    assert answer.startswith(b"HTTP/1.1 %d " % status)


def test_a_connection_is_closed_after_its_answer():
    (answer,) = asked(b"GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"Connection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\nhello\n")


def test_a_head_has_no_body():
    (answer,) = asked(b"HEAD / HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n")


def test_half_a_request_gets_no_answer():
    assert asked(b"GET / HT", end=True) == [b""]


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_long_page_comes_whole(version):
    (answer,) = asked(b"GET /big HTTP/" + version + b"\r\n\r\n")
    body = answer.partition(b"\r\n\r\n")[2]
    if version == b"1.1":
        body = b"".join(body.split(b"\r\n")[1::2])
    assert body == LONG.encode() * PIECES


def test_a_page_that_breaks_off_does_not_look_whole(caplog):
    (answer,) = asked(b"GET /broken HTTP/1.1\r\n\r\n")
    assert not answer.endswith(b"0\r\n\r\n")
    assert "a page could not be made" in caplog.text


def test_who_does_not_ask_is_let_go(monkeypatch):
    monkeypatch.setattr(http, "REQUEST_SECONDS_MAX", 0.05)
    assert asked(b"") == [b""]


def test_who_does_not_read_is_let_go_and_others_are_served_meanwhile(monkeypatch):
    monkeypatch.setattr(http, "ANSWER_SECONDS_MAX", 0.5)

    async def endless() -> Page:
        while True:
            yield LONG * 100

    async def main():
        routes = {**ROUTES, "/endless": lambda: Page(HTTPStatus.OK, "text/plain", endless())}
        server = HttpServer(routes)
        port = await server.start("127.0.0.1", 0)
        _, slow = await asyncio.open_connection("127.0.0.1", port, limit=1)
        slow.write(b"GET /endless HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(20):
            while server._tasks:
                await asyncio.sleep(0.01)
        writer.close()
        slow.close()
        await server.close()

    asyncio.run(main())


def test_connections_have_a_limit(monkeypatch):
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)

    async def main():
        server = HttpServer(ROUTES)
        port = await server.start("127.0.0.1", 0)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        async with asyncio.timeout(20):
            while len(server._tasks) < 2:
                await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(), 20)
        assert answer == b""
        for _, one in (*held, (reader, writer)):
            one.close()
        await server.close()

    asyncio.run(main())
