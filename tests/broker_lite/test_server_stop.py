"""SIGTERM: nobody new is accepted, what has come is answered, what is written is on the disk, and the stop is clean."""

import contextlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.broker_lite.protocol import fetch, find_coordinator, join_group, produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from pylog.broker_lite.protocol.find_coordinator import FindCoordinatorRequest
from pylog.broker_lite.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from tests.support.logs import batch_of
from tests.support.wire_clients import WireClient, eventually, frame, have_made_themselves

SERVE = [sys.executable, "-m", "pylog", "serve", "--listen", "127.0.0.1:0", "--log-level", "info"]
LONG_MS = 10 * 60 * 1000


class Served:
    """A broker process of its own, for signals."""

    def __init__(self, data: Path, *options: str) -> None:
        self.log = data.parent / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*SERVE, "--data", str(data), *options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        self.bootstrap_servers = self.process.stdout.readline().split()[-1]

    def signal(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        return self.process.wait(60)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "data", "--set", "offsets.topic.num.partitions=1", "--set", "num.partitions=1")
    yield served
    served.process.kill()
    served.process.communicate()


def produced(acks: int = -1) -> bytes:
    wanted = ProduceRequest(None, acks, 1000, [ProducePartition("t", 0, batch_of(1))])
    return frame(0, 7, b"".join(produce.encode_request(wanted, 7)))


def fetched(wait_ms: int) -> bytes:
    wanted = FetchRequest(wait_ms, 1 << 20, 1 << 20, 0, 0, -1, [FetchPartition("t", 0, 0, 1 << 20)])
    return frame(1, 11, fetch.encode_request(wanted, 11))


def clean_marks(data: Path) -> list[str]:
    return [path.name for path in data.iterdir() if path.name == ".kafka_cleanshutdown"]


def test_an_idle_broker_stops_cleanly(served: Served, tmp_path: Path) -> None:
    with WireClient(served.bootstrap_servers) as idle, WireClient(served.bootstrap_servers) as half:
        half.send(produced()[:20])
        have_made_themselves(idle, "t")
        served.signal()
        assert served.exit_code() == 0
        assert idle.is_closed_by_peer()
        assert half.is_closed_by_peer()
    assert clean_marks(tmp_path / "data")
    assert "stopped" in served.log.read_text()
    host, port = served.bootstrap_servers.rsplit(":", 1)
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0


def test_a_fetch_that_waits_is_answered_at_once_and_what_came_behind_it_too(served: Served, tmp_path: Path) -> None:
    with WireClient(served.bootstrap_servers) as client:
        have_made_themselves(client, "t")
        client.ask(produced())
        client.send(fetched(LONG_MS) + produced() + fetched(LONG_MS) + frame(18, 0, number=9))
        with WireClient(served.bootstrap_servers) as other:
            other.ask(frame(18, 0))  # by now it waits
        served.signal()
        body = fetch.decode_response(client.answer()[4:], 11)
        assert body.partitions[0].error_code == ErrorCode.NONE
        assert body.partitions[0].high_watermark == 1
        written = produce.decode_response(client.answer()[4:], 7)
        assert (written[0].error_code, written[0].base_offset) == (ErrorCode.NONE, 1)
        assert fetch.decode_response(client.answer()[4:], 11).partitions[0].high_watermark == 2
        assert client.answer()[:4] == b"\0\0\0\x09"
        assert client.is_closed_by_peer()
    assert served.exit_code() == 0
    assert clean_marks(tmp_path / "data")


def test_a_member_that_waits_is_told_to_look_elsewhere(served: Served) -> None:
    with WireClient(served.bootstrap_servers) as client:
        client.ask(frame(10, 0, find_coordinator.SPEC.encode_request(FindCoordinatorRequest(key="g"), 0)))
        joining = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        client.send(frame(11, 1, join_group.SPEC.encode_request(joining, 1)))
        with WireClient(served.bootstrap_servers) as other:
            other.ask(frame(18, 0))
        served.signal()
        answer = join_group.SPEC.decode_response(client.answer()[4:], 1)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert served.exit_code() == 0


def test_a_client_that_does_not_read_holds_the_stop_up_for_a_bounded_time(served: Served, tmp_path: Path) -> None:
    with (
        WireClient(served.bootstrap_servers, receive_buffer_bytes=4096) as client,
        WireClient(served.bootstrap_servers) as other,
    ):
        have_made_themselves(other, "t")
        never_read(client)
        served.signal()
        assert served.exit_code() == 0
    assert clean_marks(tmp_path / "data")


def test_a_second_signal_hurries(served: Served, tmp_path: Path) -> None:
    with (
        WireClient(served.bootstrap_servers, receive_buffer_bytes=4096) as client,
        WireClient(served.bootstrap_servers) as other,
    ):
        have_made_themselves(other, "t")
        never_read(client)
        served.signal()
        assert eventually(lambda: "stopping" in served.log.read_text())
        began = time.monotonic()
        served.signal()
        assert served.exit_code() == 0
        assert time.monotonic() - began < 5, "it did not wait for the client to read"
    assert clean_marks(tmp_path / "data")


def never_read(client: WireClient) -> None:
    """Ask for so many answers that the broker cannot get rid of them."""
    client.socket.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while True:
            client.send(frame(18, 0) * 1000)


def test_what_was_acknowledged_while_it_stopped_is_there_afterwards(tmp_path: Path) -> None:
    acknowledged = 0
    for _ in range(3):
        served = Served(tmp_path / "data")
        stop = threading.Timer(0.3, served.signal)
        with WireClient(served.bootstrap_servers) as client:
            have_made_themselves(client, "t")
            stop.start()
            with contextlib.suppress(OSError, struct.error):  # the connection has ended
                while True:
                    (result,) = produce.decode_response(client.ask(produced())[4:], 7)
                    if result.error_code == ErrorCode.NONE:
                        assert result.base_offset == acknowledged
                        acknowledged += 1
        assert served.exit_code() == 0
        served.process.communicate()
    assert acknowledged > 10


def test_a_second_broker_on_the_directory_says_so_and_leaves_it_alone(served: Served, tmp_path: Path) -> None:
    second = subprocess.run(
        [*SERVE, "--data", str(tmp_path / "data")], capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    assert str(tmp_path / "data") in second.stderr
    assert "another" in second.stderr
    with WireClient(served.bootstrap_servers) as client:
        have_made_themselves(client, "t")
    served.signal()
    assert served.exit_code() == 0
    assert clean_marks(tmp_path / "data")
