"""Answers whose records come from a file: every byte in its place, however the client takes them."""

import contextlib
import random
import struct
from pathlib import Path

import pytest

from pylog.broker_lite.client import Client
from pylog.broker_lite.connection import Answer, Parts
from pylog.storage.disk import DISK
from pylog.storage.log import FileSlice
from tests.support.connected import connected
from tests.support.wire_clients import WireClient, eventually

KB = 1024
FILE_BYTES = 12_000 * KB
REQUEST = struct.pack(">i", 1) + b"."
LAYOUTS = {
    "one piece of a file": [5_000 * KB],
    "more than is sent at once": [9_000 * KB],
    "large pieces with words between": [900 * KB, -30, 1_100 * KB, -1, 700 * KB, -3],
    "small pieces": [-10, *[20 * KB, -40] * 150],
    "large and small in turns": [100 * KB, 3 * KB, -7, 2_500 * KB, 47 * KB, 48 * KB, -300 * KB, 60 * KB],
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sending") / "records"
    path.write_bytes(random.Random(7).randbytes(FILE_BYTES))
    return path


def _parts(path: Path, layout: list[int]) -> Parts:
    """Sizes: of a piece of the file, or, below 0, of bytes that are not in a file. The pieces overlap."""
    parts: Parts = [b""]
    file = DISK.open(path)
    for number, size in enumerate(layout):
        parts.append(FileSlice(file, number * 1000, size) if size > 0 else bytes([number % 251]) * -size)
    parts[0] = struct.pack(">i", sum(map(abs, layout)))
    return parts


def _expected(path: Path, layout: list[int]) -> bytes:
    data = path.read_bytes()
    pieces = (
        data[number * 1000 : number * 1000 + size] if size > 0 else bytes([number % 251]) * -size
        for number, size in enumerate(layout)
    )
    return b"".join(pieces)


def _received(client: WireClient) -> bytes:
    """Until the broker ends the connection."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := client.socket.recv(1 << 20):
            received += data
    return received


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("receive_buffer_bytes", [None, 4096], ids=["a quick reader", "a slow reader"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_byte_arrives_in_its_place(
    records: Path, layout: list[int], receive_buffer_bytes: int | None, later: bool
) -> None:
    async def promised() -> Parts:
        return _parts(records, layout)

    def answer(frame: memoryview, client: Client) -> Answer:
        return promised() if later else _parts(records, layout)

    with connected(answer) as served, WireClient(served.bootstrap_servers, receive_buffer_bytes) as client:
        client.send(REQUEST * 3)
        for _ in range(3):
            assert client.answer() == _expected(records, layout)


def test_who_does_not_read_holds_next_to_nothing_and_nobody_up(records: Path) -> None:
    def answer(frame: memoryview, client: Client) -> Answer:
        return _parts(records, [FILE_BYTES]) if frame[0] == ord(".") else [struct.pack(">i", 2), b"ok"]

    def held_bytes() -> int:
        return max((one._transport.get_write_buffer_size() for one in served.connections._all), default=0)

    with connected(answer) as served, WireClient(served.bootstrap_servers, 4096) as client:
        client.send(REQUEST)
        assert eventually(lambda: served.on_loop(held_bytes) > 0)
        assert served.on_loop(held_bytes) <= 4 * KB
        with WireClient(served.bootstrap_servers) as other:
            assert other.ask(struct.pack(">i", 1) + b"?") == b"ok"
        assert client.answer() == records.read_bytes()


def test_who_goes_in_the_middle_of_an_answer_leaves_nothing(records: Path) -> None:
    def answer(frame: memoryview, client: Client) -> Answer:
        return _parts(records, [FILE_BYTES])

    with connected(answer) as served:
        client = WireClient(served.bootstrap_servers, 4096)
        client.send(REQUEST)
        assert len(client.socket.recv(1000)) > 0
        client.close()
        assert eventually(lambda: served.on_loop(lambda: served.connections.count) == 0)


@pytest.mark.parametrize("missing_bytes", [10 * KB, 5_000 * KB], ids=["of a small piece", "of a large piece"])
def test_a_file_that_is_too_short_ends_the_connection(records: Path, missing_bytes: int) -> None:
    """Half an answer is out: nothing could follow it."""

    def answer(frame: memoryview, client: Client) -> Answer:
        file = DISK.open(records)
        return [struct.pack(">i", 2 * missing_bytes), FileSlice(file, FILE_BYTES - missing_bytes, 2 * missing_bytes)]

    with connected(answer) as served, WireClient(served.bootstrap_servers) as client:
        client.send(REQUEST)
        assert len(_received(client)) < 4 + 2 * missing_bytes
        assert eventually(lambda: served.on_loop(lambda: served.connections.count) == 0)
