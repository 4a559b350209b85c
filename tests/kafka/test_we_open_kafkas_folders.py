"""Partition folders that Apache Kafka wrote, compacted and transactional ones included, after kill -9 and after a
stop: our log says of them what Kafka says, finds nothing wrong with them, and goes on where Kafka ended."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import pylog
from pylog.storage.batch import CONTROL, BatchHeader, walk
from pylog.storage.checkpoints import LOG_START_OFFSETS
from pylog.storage.data_directory import MARKER_NAME
from pylog.storage.epochs import FILE_NAME as EPOCHS_NAME
from pylog.storage.epochs import LeaderEpochs
from pylog.storage.errors import OutOfOrderSequence, StaleProducerEpoch
from pylog.storage.inspect.deep import deep
from pylog.storage.inspect.findings import Finding, Report, Severity
from pylog.storage.inspect.verify import verify
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import METADATA_NAME, LogManager
from pylog.storage.recovery import Trust
from tests.support.java_tools import dump_log_segments
from tests.support.kafka_written import INDEX_INTERVAL_BYTES, TOPICS, Left, copied, topic_id_in
from tests.support.logs import batch_of
from tests.support.partition_views import create_topics, records_through, view_of_log

STATES = ("killed", "stopped")
CONFIG = LogConfig(index_interval_bytes=INDEX_INTERVAL_BYTES, retention_ms=-1)
COMPACTED = ("compacted", "tombstones-gone")
PREALLOCATED_BYTES = 10_000_000


@pytest.fixture(scope="module", params=STATES)
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def opened(
    state: str, written: dict[str, Left], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, PartitionLog]]:
    """Every topic's log, under a manager that read Kafka's checkpoints."""
    data = copied(written[state].data, tmp_path_factory.mktemp("opened") / "data")
    manager = LogManager([data], CONFIG)
    yield {topic: manager.open(topic, 0, topic_id_in(data / f"{topic}-0")) for topic in TOPICS}
    manager.close()


def findings(path: Path) -> list[Finding]:
    found: list[Finding] = []
    verify(path, Report(found.append), deep())
    return [finding for finding in found if finding.severity is not Severity.NOTE]


# -- reading


def test_the_state_is_what_its_name_says(written: dict[str, Left], state: str) -> None:
    """Or the tests below prove less than they say."""
    data = written[state].data
    assert (data / MARKER_NAME).exists() == (state == "stopped")
    active = max((data / "codecs-0").glob("*.index"))
    assert (active.stat().st_size > PREALLOCATED_BYTES) == (state == "killed")
    for topic in COMPACTED:
        headers = [header for log in (data / f"{topic}-0").glob("*.log") for _, header in walk(log.read_bytes())]
        assert any(header.record_count == 0 for header in headers)  # emptied, and kept for its sequence number
        assert any(header.attributes & CONTROL for header in headers)
        assert {header.codec for header in headers} > {0}
        if topic == "compacted":
            assert any(header.attributes & 0x40 for header in headers)  # waits for its time to be deleted
    views = written[state].views
    assert {record.value is None for record in views["compacted"].records} == {True, False}
    assert {record.value is None for record in views["tombstones-gone"].records} == {False}
    assert 0 < views["transactions"].bounds.last_stable_offset < views["transactions"].bounds.high_watermark
    assert len(views["transactions"].committed) < len(views["transactions"].records)
    assert views["deleted"].bounds.log_start_offset == (25 if state == "stopped" else 0)


@pytest.mark.parametrize("topic", TOPICS)
def test_our_log_says_of_a_partition_what_kafka_says(
    written: dict[str, Left], opened: dict[str, PartitionLog], state: str, topic: str
) -> None:
    """Every record, what is committed, the offsets, the producers, look-ups by time."""
    expected = written[state].views[topic]
    log = opened[topic]
    assert log.cuts == []
    assert view_of_log(log, expected.offsets_at) == expected


@pytest.mark.parametrize("topic", TOPICS)
def test_its_leader_epochs_are_those_of_kafka(
    written: dict[str, Left], opened: dict[str, PartitionLog], state: str, topic: str
) -> None:
    """Where compaction took the first batch of an epoch away, only the file knows where that one began. Epochs that
    begin where the log ends have no batch and no meaning yet, and Kafka's next start drops them too."""
    log, path = opened[topic], written[state].data / f"{topic}-0" / EPOCHS_NAME
    epochs = LeaderEpochs.decode(path.read_bytes(), path)
    epochs.truncate_from_end(log.log_end_offset)
    if topic == "deletion-lost" and state == "killed":  # the batches that the file has forgotten are back
        epochs.assign(0, 0) if state == "killed" else None
    assert log.epochs.entries == epochs.entries


def test_verify_finds_nothing_in_kafkas_directory(written: dict[str, Left], state: str) -> None:
    assert findings(written[state].data) == []


@pytest.mark.parametrize("topic", TOPICS)
def test_indexes_and_snapshots_that_we_build_are_kafkas_to_the_byte(
    written: dict[str, Left], tmp_path: Path, topic: str
) -> None:
    """Of a Kafka that ran once: each further start leaves an entry of the time index, where the last one ended."""
    theirs = written["killed"].data / f"{topic}-0"
    log = PartitionLog(copied(theirs, tmp_path / "topic-0"), CONFIG, Trust(clean=False))
    log.close()
    compared = 0
    for path in theirs.iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot"):
            ours, preallocated = (log.directory / path.name).read_bytes(), path.stat().st_size > PREALLOCATED_BYTES
            if not preallocated:
                assert ours == path.read_bytes(), path
            else:  # zeros behind the last entry; we have closed ours, and so it ends with the maximum timestamp
                assert ours.startswith(path.read_bytes().rstrip(b"\0")), path
            compared += 1
    assert compared >= 2


@pytest.mark.parametrize("topic", TOPICS)
def test_a_killed_one_that_is_called_clean_is_read_all_the_same(
    written: dict[str, Left], tmp_path: Path, topic: str
) -> None:
    """Behind the last entries of its indexes stand ten megabytes of zeros. (Producers are another matter: a closed log
    without a snapshot has none, in Kafka as with us.)"""
    left = written["killed"]
    log = PartitionLog(copied(left.data / f"{topic}-0", tmp_path / "topic-0"), CONFIG, Trust(clean=True))
    expected = left.views[topic]
    assert replace(view_of_log(log, expected.offsets_at), producers=[]) == replace(expected, producers=[])


# -- what is left behind


def test_what_we_close_is_sound_to_us_and_to_kafkas_tool(written: dict[str, Left], state: str, tmp_path: Path) -> None:
    data = copied(written[state].data, tmp_path / "data")
    manager = LogManager([data], CONFIG)
    for topic in TOPICS:
        log = manager.open(topic, 0, topic_id_in(data / f"{topic}-0"))
        log.append(batch_of(2), 5)
    manager.close()
    assert findings(data) == []
    dump = dump_log_segments([data / f"{topic}-0" for topic in TOPICS], "--deep-iteration")
    assert dump.complaints == []
    assert {path.parent.name for path in dump.gaps} == {f"{topic}-0" for topic in COMPACTED}
    assert sum("isvalid: true" in line for lines in dump.lines.values() for line in lines) > 100


def test_a_producer_of_kafkas_goes_on_in_our_log(written: dict[str, Left], state: str, tmp_path: Path) -> None:
    """Its next batch is taken, its last one is known, a gap and an older epoch are refused."""
    log = PartitionLog(
        copied(written[state].data / "codecs-0", tmp_path / "topic-0"), CONFIG, Trust(state == "stopped")
    )
    last = last_batch_of(log, 3)

    def sent(sequence: int, count: int = 20, epoch: int = 0) -> bytearray:
        return batch_of(count, producer_id=3, producer_epoch=epoch, sequence=sequence)

    again = log.append(sent(last.base_sequence), 5)
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, last.base_offset, last.last_offset)
    with pytest.raises(OutOfOrderSequence):
        log.append(sent(21), 5)
    assert log.append(sent(20), 5).base_offset == log.log_end_offset - 20
    log.append(sent(0, epoch=1), 5)
    with pytest.raises(StaleProducerEpoch):
        log.append(sent(40), 5)


def last_batch_of(log: PartitionLog, producer_id: int) -> BatchHeader:
    segments = sorted(log.directory.glob("*.log"))
    headers = [header for path in segments for _, header in walk(path.read_bytes())]
    return [header for header in headers if header.producer_id == producer_id][-1]


# -- serving


def test_our_broker_serves_them(written: dict[str, Left], state: str, tmp_path: Path) -> None:
    """Under topic ids of its own, as it has metadata of its own."""
    with pylog.Broker(tmp_path) as broker:
        create_topics(broker.bootstrap_servers, {topic: {"retention.ms": "-1"} for topic in TOPICS})
        broker.stop()
        for topic in TOPICS:
            folder = tmp_path / f"{topic}-0"
            metadata = (folder / METADATA_NAME).read_bytes()
            shutil.rmtree(folder)
            copied(written[state].data / f"{topic}-0", folder)
            (folder / METADATA_NAME).write_bytes(metadata)
        shutil.copy(written[state].data / LOG_START_OFFSETS, tmp_path)
        if state == "killed":
            (tmp_path / MARKER_NAME).unlink()
        broker.start()
        servers = broker.bootstrap_servers
        for level, expected in (
            ("read_uncommitted", {topic: view.records for topic, view in written[state].views.items()}),
            ("read_committed", {topic: view.committed for topic, view in written[state].views.items()}),
        ):
            assert records_through(servers, TOPICS, level) == expected
