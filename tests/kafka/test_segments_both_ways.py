"""Partition folders: Apache Kafka's tool reads and checks ours, index entries included; we open Apache Kafka's."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.recovery import Trust
from tests.support.apache_kafka import ApacheKafka
from tests.support.foreign_clients import CLIENTS, ForeignRecord
from tests.support.java_tools import DUMP_LOG_SEGMENTS, run_kafka_tool
from tests.support.logs import START_MS, batch_of, log_in, records_in, reopened

pytestmark = pytest.mark.kafka

TOPIC = "segments"
APPENDS = 60
SENT = [
    ForeignRecord(b"key", bytes([number]) * 900, timestamp_ms=START_MS + number * 10 // 3) for number in range(APPENDS)
]


def test_kafkas_tool_finds_no_fault_in_our_segments_and_indexes(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=8_000, index_interval_bytes=500))
    for number in range(200):
        log.append(batch_of(number % 5 + 1, timestamp_ms=START_MS + number, value=bytes(number), codec=number % 5), 7)
        if number % 70 == 69:
            log = reopened(log, clean=number > 100)
    log.close()
    logs = sorted(log.directory.glob("*.log"))
    indexes = sorted(log.directory.glob("*index"))
    assert len(logs) > 2
    printed = run_kafka_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", ",".join(map(str, logs)))
    assert printed.count("isvalid: true") == 200
    assert "isvalid: false" not in printed
    assert printed.count("| offset: ") == log.log_end_offset
    printed = run_kafka_tool(DUMP_LOG_SEGMENTS, "--files", ",".join(map(str, indexes)))
    for complaint in ("Mismatches", "mismatch", "out of order", "not found in the log"):
        assert complaint not in printed
    assert printed.count("offset: ") == sum(
        path.stat().st_size // (12 if path.suffix == ".timeindex" else 8) for path in indexes
    )


@pytest.fixture(scope="module")
def kafkas_folders() -> Iterator[tuple[Path, Path]]:
    """A partition folder as a running Kafka has it, which is what kill -9 leaves, and as a clean stop leaves it."""
    properties = {"log.index.interval.bytes": "2000", "log.segment.bytes": "1048576"}
    with ApacheKafka(properties) as kafka:
        client = CLIENTS["confluent-kafka"]
        client.create_topic(kafka.bootstrap_servers, TOPIC, 1)
        for start in range(0, APPENDS, 3):
            client.produce(kafka.bootstrap_servers, TOPIC, SENT[start : start + 3])
        running = kafka.data.parent / "running"
        shutil.copytree(kafka.data / f"{TOPIC}-0", running)
        kafka.stop()
        yield running, kafka.data / f"{TOPIC}-0"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_we_open_what_kafka_wrote(
    tmp_path: Path, kafkas_folders: tuple[Path, Path], stopped: bool, clean: bool
) -> None:
    """Also where it is called clean and is not: Kafka allocates the indexes of its active segment in advance."""
    folder = tmp_path / "topic-0"
    shutil.copytree(kafkas_folders[1 if stopped else 0], folder)
    log = PartitionLog(folder, LogConfig(index_interval_bytes=2000), Trust(clean=clean))
    assert log.log_end_offset == APPENDS
    assert [(record.timestamp_ms, record.value) for record in records_in(log)] == [
        (record.timestamp_ms, record.value) for record in SENT
    ]
    for offset, record in enumerate(SENT):
        first = next(number for number, other in enumerate(SENT) if other.timestamp_ms >= record.timestamp_ms)
        assert log.offset_at_time(record.timestamp_ms) == (record.timestamp_ms, first)
        assert log.read(offset, 1) is not None
    assert log.append(batch_of(1), 0).base_offset == APPENDS
