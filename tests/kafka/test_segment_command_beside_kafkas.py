"""`pylog segment` on directories that Apache Kafka wrote, compacted and transactional ones included; and its lines
beside those of Kafka's own tool, on Kafka's directories and on ours."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.cli import main
from pylog.storage.batch import walk
from pylog.storage.disk import DISK
from pylog.storage.inspect.dump import Detail, dump, text
from tests.support.apache_kafka import ApacheKafka
from tests.support.java_tools import DUMP_LOG_SEGMENTS, run_kafka_tool
from tests.support.sample_log import sample

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "300"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "transactional": {},
    "compacted": COMPACTED,
    "both": COMPACTED,
}
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
COMPACTION_SECONDS_MAX = 60


def use(servers: str) -> None:
    """Every codec, timestamps of either kind, repeated keys, tombstones, transactions of either end, one left open."""
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for created in admin.create_topics(wanted).values():
        created.result(30)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 20})
        for number in range(40):
            headers = [("h", b"x"), ("n", None)] if number % 3 == 0 else []
            for topic in ("plain", "stamped"):
                producer.produce(topic, b"v" * 200, f"k{number}", headers=headers, timestamp=1_700_000_000_000 + number)
        producer.flush()
    idempotent = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for turn in range(3):
        for number in range(20):
            value = None if turn == 2 and number % 5 == 0 else b"v%d" % turn * 30
            idempotent.produce("compacted", value, f"k{number}")
        idempotent.flush()
        transactional = Producer({"bootstrap.servers": servers, "transactional.id": f"t{turn % 2}"})
        transactional.init_transactions(30)
        for commit in (True, False):
            transactional.begin_transaction()
            for topic in ("transactional", "both"):
                for number in range(5):
                    transactional.produce(topic, b"w" * 100, f"k{number}")
            transactional.flush()
            (transactional.commit_transaction if commit else transactional.abort_transaction)(30)
        time.sleep(0.4)  # until segment.ms has passed: the next batch begins a segment, and this one can be compacted
    plain = Producer({"bootstrap.servers": servers})
    for topic in ("compacted", "both"):
        plain.produce(topic, b"z", b"z")
    plain.flush()
    left_open = Producer({"bootstrap.servers": servers, "transactional.id": "left open"})
    left_open.init_transactions(30)
    left_open.begin_transaction()
    left_open.produce("transactional", b"o", b"o")
    left_open.flush()
    deleted = TopicPartition("plain", 0, 5)
    admin.delete_records([deleted])[deleted].result(30)


def wait_for_compaction(data: Path) -> None:
    deadline = time.monotonic() + COMPACTION_SECONDS_MAX
    while time.monotonic() < deadline:
        logs = [path.read_bytes() for name in ("compacted-0", "both-0") for path in (data / name).glob("*.log")]
        headers = [header for log in logs for _, header in walk(log)]
        if any(header.attributes & 0x40 for header in headers) and any(not header.record_count for header in headers):
            return
        time.sleep(0.5)
    raise AssertionError("Kafka compacted nothing")


@pytest.fixture(scope="module")
def kafkas() -> Iterator[dict[str, Path]]:
    """Data directories as a running Kafka has them, which is what kill -9 leaves, and as a clean stop leaves them."""
    properties = {"log.index.interval.bytes": "500", "log.cleaner.backoff.ms": "200"}
    with ApacheKafka(properties) as kafka:
        use(kafka.bootstrap_servers)
        wait_for_compaction(kafka.data)
        running = kafka.data.parent / "running"
        for _ in range(3):
            try:
                shutil.copytree(kafka.data, running)
                break
            except shutil.Error:  # a file was compacted away while it was copied
                shutil.rmtree(running)
        kafka.stop()
        yield {"running": running, "stopped": kafka.data}


def ours(paths: list[Path]) -> list[str]:
    return [text(row) for path in paths for row in dump(path, Detail(records=True, data=True))]


def kafkas_lines(paths: list[Path]) -> list[str]:
    return run_kafka_tool(DUMP_LOG_SEGMENTS, "--print-data-log", "--files", ",".join(map(str, paths))).splitlines()


@pytest.mark.parametrize("state", ["running", "stopped"])
@pytest.mark.parametrize("deep", [[], ["--deep"]], ids=["shallow", "deep"])
def test_a_directory_of_kafkas_is_sound(
    kafkas: dict[str, Path], capsys: pytest.CaptureFixture[str], state: str, deep: list[str]
) -> None:
    assert main(["segment", "verify", str(kafkas[state]), *deep]) == 0, capsys.readouterr().out
    assert len(capsys.readouterr().out.splitlines()) == 1  # not even a note


@pytest.mark.parametrize("topic", TOPICS)
def test_our_lines_about_kafkas_files_are_those_of_kafkas_tool(kafkas: dict[str, Path], topic: str) -> None:
    folder = kafkas["stopped"] / f"{topic}-0"
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    assert ours(paths) == kafkas_lines(paths)


def test_our_lines_about_our_files_are_those_of_kafkas_tool(tmp_path: Path) -> None:
    folder = sample(DISK, tmp_path)
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    assert len(paths) > 12
    assert ours(paths) == kafkas_lines(paths)
