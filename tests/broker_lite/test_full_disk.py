"""A disk that is full, or fails, as clients see it: writes are refused in words, reads go on, and all is well again
when there is room."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.broker_lite.protocol import fetch, produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.storage.log import Appended
from tests.support.clock import SettableClock
from tests.support.connected import ServedBroker, serving
from tests.support.foreign_clients import CLIENTS, ForeignRecord
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles
from tests.support.wire_clients import WireClient, eventually, frame, have_made_themselves

pytestmark = pytest.mark.faults

CONFIG = {"log.retention.ms": -1, "offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles(SettableClock(START_MS))


@pytest.fixture
def served(files: SimulatedFiles) -> Iterator[ServedBroker]:
    with serving([Path(files.root / "data")], files=files, clock=files.clock, config=CONFIG) as running:
        yield running


@pytest.fixture
def client(served: ServedBroker) -> Iterator[WireClient]:
    with WireClient(served.bootstrap_servers) as connected:
        have_made_themselves(connected, "t", "u")
        yield connected


def produced(client: WireClient, topic: str = "t") -> ProducedPartition:
    wanted = ProduceRequest(None, -1, 1000, [ProducePartition(topic, 0, batch_of(1, value=bytes(1000)))])
    answer = client.ask(frame(0, 9, b"".join(produce.encode_request(wanted, 9)), flexible=True))
    return produce.decode_response(answer[5:], 9)[0]


def fetched(client: WireClient, topic: str = "t", offset: int = 0) -> FetchedPartition:
    wanted = FetchRequest(0, 1, 1 << 20, 0, 0, -1, [FetchPartition(topic, 0, offset, 20_000)])
    (found,) = fetch.decode_response(client.ask(frame(1, 11, fetch.encode_request(wanted, 11)))[4:], 11).partitions
    return found


def test_a_full_disk_refuses_records_serves_readers_and_recovers(files: SimulatedFiles, client: WireClient) -> None:
    assert produced(client).error_code == ErrorCode.NONE
    files.capacity_bytes = files.used_bytes + 3000
    written = 1
    while (result := produced(client)).error_code == ErrorCode.NONE:
        written += 1
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in (result.error_message or "")
    assert written > 1
    assert fetched(client).high_watermark == written
    assert len(fetched(client).records or b"") > 1000 * written
    assert produced(client, "u").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    files.capacity_bytes = None
    assert produced(client).base_offset == written, "nothing of what was refused is there"
    assert produced(client, "u").base_offset == 0
    assert fetched(client).error_code == ErrorCode.NONE


def test_a_producer_of_another_make_gets_through_when_there_is_room(
    files: SimulatedFiles, served: ServedBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [ForeignRecord(None, bytes(500), (), START_MS + number) for number in range(20)]
    assert produced(client, "u").error_code == ErrorCode.NONE
    files.capacity_bytes = files.used_bytes
    failed: list[BaseException] = []
    tried: list[int] = []
    log = served.broker.partitions["t", 0].log
    append = log.append

    def noted(batches: bytearray | memoryview, leader_epoch: int) -> Appended:
        tried.append(len(batches))
        return append(batches, leader_epoch)

    monkeypatch.setattr(log, "append", noted)

    def send() -> None:
        try:
            CLIENTS["confluent-kafka"].produce(served.bootstrap_servers, "t", records)
        except BaseException as error:
            failed.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert eventually(lambda: len(tried) > 1), "it does not try again"
    assert fetched(client, "u").high_watermark == 1
    files.capacity_bytes = None
    sender.join(60)
    assert not failed
    assert fetched(client).high_watermark == 20


def test_a_disk_that_fails_takes_its_partition_offline_and_no_other(files: SimulatedFiles, client: WireClient) -> None:
    assert produced(client).error_code == produced(client, "u").error_code == ErrorCode.NONE
    files.fail("append", errno.EIO, path="*/t-0/*", times=None)
    result = produced(client)
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "Input/output error" in (result.error_message or "")
    assert "is offline" in (produced(client).error_message or "")
    assert fetched(client).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produced(client, "u").base_offset == 1
    assert fetched(client, "u").high_watermark == 2
