"""Who fetches what has left the page cache waits for the disk, in a thread; everybody else is answered meanwhile."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.broker_lite.protocol import fetch, produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from pylog.storage.disk import Disk, DiskFile
from pylog.storage.errors import LogOffline
from tests.support.cold import ColdFiles
from tests.support.connected import serving
from tests.support.logs import batch_of
from tests.support.wire_clients import API_VERSIONS, WireClient, frame, have_made_themselves

BATCHES = 300
BATCH_BYTES = 10_000
CONFIG = {"log.retention.ms": -1, "log.segment.bytes": 1_000_000}


def fetched(offset: int, bytes_max: int) -> bytes:
    wanted = FetchRequest(0, 1, 50 << 20, 0, 0, -1, [FetchPartition("t", 0, offset, bytes_max)])
    return frame(1, 11, fetch.encode_request(wanted, 11))


def decoded(answer: bytes) -> FetchedPartition:
    (found,) = fetch.decode_response(answer[4:], 11).partitions
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of some segments."""
    directory = tmp_path / "data"
    with serving([directory], config=CONFIG) as served, WireClient(served.bootstrap_servers) as client:
        have_made_themselves(client, "t")
        for number in range(BATCHES):
            batch = batch_of(1, value=number.to_bytes(2) * (BATCH_BYTES // 2))
            request = ProduceRequest(None, -1, 1000, [ProducePartition("t", 0, batch)])
            client.ask(frame(0, 7, b"".join(produce.encode_request(request, 7))))
    return directory


@pytest.fixture
def cold_data(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of which nothing is in memory."""
    cold = ColdFiles(monkeypatch)
    for path in (data / "t-0").iterdir():
        cold.forget(path)
    return data


class SlowDisk:
    """Reads of what is not in memory take until `ready`; who waits for them is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ready = threading.Event()
        self.waits = threading.Semaphore(0)
        self.threads: set[int] = set()
        read_ahead, read_at = DiskFile.read_ahead, Disk.read_at

        def slow_read_ahead(file: DiskFile, position: int, length: int) -> None:
            self._wait()
            read_ahead(file, position, length)

        def slow_read_at(files: Disk, path: Path, position: int, length: int) -> bytes:
            if threading.current_thread().name.startswith("cold-read"):
                self._wait()
            return read_at(files, path, position, length)

        monkeypatch.setattr(DiskFile, "read_ahead", slow_read_ahead)
        monkeypatch.setattr(Disk, "read_at", slow_read_at)

    def _wait(self) -> None:
        self.threads.add(threading.get_ident())
        self.waits.release()
        assert self.ready.wait(30)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk(monkeypatch)
    yield disk
    disk.ready.set()


@pytest.mark.parametrize(
    ("offset", "bytes_max"),
    [
        pytest.param(0, 1 << 20, id="the whole of the first segment"),
        pytest.param(50, 15_000, id="a little from the middle of a segment"),
        pytest.param(120, 300_000, id="much from the middle of another"),
        pytest.param(BATCHES - 1, 1 << 20, id="the last one"),
    ],
)
def test_cold_records_are_the_same_records(cold_data: Path, offset: int, bytes_max: int) -> None:
    with serving([cold_data], config=CONFIG) as served, WireClient(served.bootstrap_servers) as client:
        cold = decoded(client.ask(fetched(offset, bytes_max)))
        warm = decoded(client.ask(fetched(offset, bytes_max)))
        assert cold.error_code == ErrorCode.NONE
        assert bytes(cold.records or b"") == bytes(warm.records or b"")
        assert offset.to_bytes(2) * (BATCH_BYTES // 2) in bytes(cold.records or b"")


@pytest.mark.parametrize("bytes_max", [15_000, 1 << 20], ids=["a little", "much"])
def test_while_somebody_waits_for_the_disk_others_are_answered(
    cold_data: Path, slow_disk: SlowDisk, bytes_max: int
) -> None:
    with serving([cold_data], config=CONFIG) as served:
        reader, other = WireClient(served.bootstrap_servers), WireClient(served.bootstrap_servers)
        reader.send(fetched(50, bytes_max))
        assert slow_disk.waits.acquire(timeout=30), "it does not wait for the disk where it should"
        for _ in range(100):
            assert len(other.ask(API_VERSIONS)) > 10
        slow_disk.ready.set()
        assert decoded(reader.answer()).error_code == ErrorCode.NONE
        assert served.on_loop(threading.get_ident) not in slow_disk.threads
        reader.close()
        other.close()


def test_a_reader_that_goes_while_the_disk_works_is_forgotten(cold_data: Path, slow_disk: SlowDisk) -> None:
    with serving([cold_data], config=CONFIG) as served:
        with WireClient(served.bootstrap_servers) as reader:
            reader.send(fetched(50, 1 << 20))
            assert slow_disk.waits.acquire(timeout=30)
        slow_disk.ready.set()
        with WireClient(served.bootstrap_servers) as other:
            assert decoded(other.ask(fetched(50, 1 << 20))).error_code == ErrorCode.NONE


def test_a_disk_that_fails_a_thread_is_asked_again_by_the_log(cold_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log, not the thread, decides what an error means: here it has passed."""

    def fails(file: DiskFile, position: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    with serving([cold_data], config=CONFIG) as served, WireClient(served.bootstrap_servers) as client:
        monkeypatch.setattr(DiskFile, "read_ahead", fails)
        assert decoded(client.ask(fetched(50, 15_000))).error_code == ErrorCode.NONE
        assert not isinstance(served.broker.partitions["t", 0].log.failure, LogOffline)


def test_memory_so_short_that_nothing_stays_in_it_is_waited_for_in_the_end(
    cold_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving([cold_data], config=CONFIG) as served, WireClient(served.bootstrap_servers) as client:
        monkeypatch.setattr(DiskFile, "read_ahead", lambda file, position, length: None)
        assert decoded(client.ask(fetched(50, 15_000))).error_code == ErrorCode.NONE


def test_of_what_is_sent_from_a_file_each_piece_is_read_by_a_thread_first_where_it_is_not_in_memory(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[tuple[int, int]] = []
    read_ahead = DiskFile.read_ahead

    def noted(file: DiskFile, position: int, length: int) -> None:
        assert threading.current_thread().name.startswith("cold-read")
        pieces.append((position, length))
        read_ahead(file, position, length)

    with serving([data], config=CONFIG) as served, WireClient(served.bootstrap_servers) as client:
        warm = decoded(client.ask(fetched(0, 1 << 20)))
        monkeypatch.setattr(DiskFile, "is_in_memory", lambda file, position, length: False)
        monkeypatch.setattr(DiskFile, "read_ahead", noted)
        monkeypatch.setattr("pylog.broker_lite.sending._AT_ONCE_BYTES", 400_000)
        cold = decoded(client.ask(fetched(0, 1 << 20)))
        assert bytes(cold.records or b"") == bytes(warm.records or b"")
        size_bytes = len(warm.records or b"")
        assert pieces == [(0, 400_000), (400_000, 400_000), (800_000, size_bytes - 800_000)]
