"""A data directory as Apache Kafka leaves it, killed and stopped, and what Kafka itself said of every topic before.

One Kafka writes everything that it can write: all codecs of three clients, transactions that are committed, aborted
and open, segments that its cleaner compacted, deleted records, append times, leader epochs."""

import base64
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import confluent_kafka
import kafka

from pylog.storage.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from tests.support.apache_kafka import QUICK, SOON_BACK, ApacheKafka
from tests.support.foreign_clients import CLIENTS, ForeignRecord
from tests.support.java_tools import PRODUCER_PERFORMANCE, run_kafka_tool
from tests.support.partition_views import View, create_topics, views_through, wait_for_leaders

SECONDS_MAX = 60.0
STEP_MS = 10_000
OPEN = "open"  # the transactional id whose transaction is never ended

INDEX_INTERVAL_BYTES = 600
_SMALL = {"index.interval.bytes": str(INDEX_INTERVAL_BYTES), "segment.ms": "15000"}  # a segment for every second step
_COMPACT = {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}

TOPICS = {
    "codecs": _SMALL,
    "java": {"index.interval.bytes": str(INDEX_INTERVAL_BYTES)},
    "append-time": {**_SMALL, "message.timestamp.type": "LogAppendTime"},
    "transactions": _SMALL,
    "compacted": _COMPACT,
    "tombstones-gone": {**_COMPACT, "delete.retention.ms": "0"},
    "deleted": _SMALL,
    "deletion-lost": _SMALL,  # a minute is to pass before Kafka stores where a log begins
    "empty": {},
}


@dataclass(frozen=True)
class Left:
    data: Path
    views: dict[str, View]  # of every topic, by Kafka itself


class Writer:
    """Writes to a topic with confluent-kafka, in steps of time that its segments roll by."""

    def __init__(self, servers: str, start_ms: int, name: str | None = None, codec: str = "none") -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": 20,
            "log_level": 0,
        }
        if name is not None:
            settings |= {"transactional.id": name, "transaction.timeout.ms": 600_000}  # nobody else is to end it
        self._producer = confluent_kafka.Producer(settings)
        self._now_ms = start_ms
        if name is not None:
            self._producer.init_transactions(SECONDS_MAX)

    def write(self, topic: str, step: int, keys: range, *, deleted: bool = False, flush: bool = True) -> None:
        """One batch: a record a key, their timestamps not in order."""
        for number in keys:
            timestamp_ms = self._now_ms + step * STEP_MS + number * 7 % 50
            value = None if deleted else b"step %d of key %d;" % (step, number) * (number % 9)
            headers: list[tuple[str, str | bytes | None]] = [("step", b"%d" % step), ("none", None)]
            self._producer.produce(
                topic, value, b"key-%d" % number, 0, timestamp=timestamp_ms, headers=headers[number % 3 :]
            )
        if flush:
            self._flush()

    def _flush(self) -> None:
        assert self._producer.flush(SECONDS_MAX) == 0

    def begin(self) -> None:
        self._producer.begin_transaction()

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(SECONDS_MAX)
        else:
            self._producer.abort_transaction(SECONDS_MAX)


def written_by_kafka(folder: Path) -> Iterator[Left]:
    """First as kill -9 leaves it, then, with more in it, as a clean stop does. Both are copies in `folder`."""
    start_ms = int(time.time() * 1000) - 60_000
    with ApacheKafka(QUICK | SOON_BACK) as kafka_server:
        servers = kafka_server.bootstrap_servers
        create_topics(servers, TOPICS)
        _first_life(kafka_server, start_ms)
        kafka_server.kill()
        killed = copied(kafka_server.data, folder / "killed")
        kafka_server.start()
        wait_for_leaders(servers, TOPICS)
        yield Left(killed, _views(servers))  # what Kafka made of the same files
        _second_life(kafka_server, start_ms)
        views = _views(servers)
        kafka_server.stop()
        yield Left(copied(kafka_server.data, folder / "stopped"), views)


def _first_life(server: ApacheKafka, start_ms: int) -> None:
    servers = server.bootstrap_servers
    for step, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        writer = Writer(servers, start_ms, codec=codec)
        writer.write("codecs", step, range(30))
        writer.write("append-time", step, range(step, 12))
        writer.write("deleted", step, range(10))
        writer.write("deletion-lost", step, range(10))
    others = [ForeignRecord(None, b"%d" % n * 200, (("h", b""),), start_ms + 5 * STEP_MS + n) for n in range(20)]
    for codec in ("gzip", "snappy", "lz4", "zstd"):  # kafka-python frames its snappy as Java does
        CLIENTS["kafka-python"].produce(servers, "codecs", others, codec=codec)
    _delete_records(servers, "deletion-lost", 25)
    produced = ["--bootstrap-server", servers, "--topic", "java", "--num-records", "3000", "--record-size", "100"]
    settings = ["--throughput", "-1", "--producer-props", "compression.type=snappy", "linger.ms=0"]
    run_kafka_tool(PRODUCER_PERFORMANCE, *produced, *settings, "--transactional-id", "java")
    _transactions(servers, start_ms)
    _compacted(server, start_ms)


def _transactions(servers: str, start_ms: int) -> None:
    """Of three producers, interleaved, over several segments; one is still open at the end."""
    topic = "transactions"
    plain, first, second = (Writer(servers, start_ms, name) for name in (None, "first", "second"))
    for step in range(8):
        first.begin()
        first.write(topic, step, range(5))
        plain.write(topic, step, range(5, 8))
        if step % 2 == 0:
            second.begin()
        second.write(topic, step, range(8, 12))
        first.end(commit=step % 3 != 0)
        if step % 2 == 1:
            second.end(commit=step % 4 == 1)
    still_open = Writer(servers, start_ms, OPEN)
    still_open.begin()
    still_open.write(topic, 8, range(3))
    first.begin()
    first.write(topic, 8, range(3, 6))
    first.end(commit=False)  # behind the open one: not stable yet
    plain.write(topic, 8, range(6, 9))


def _compacted(server: ApacheKafka, start_ms: int) -> None:
    servers, topics = server.bootstrap_servers, ("compacted", "tombstones-gone")
    writers = [Writer(servers, start_ms, codec=codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")]
    ended = Writer(servers, start_ms, "compacting")
    for topic in topics:
        for step in range(6):
            writers[step % 5].write(topic, 2 * step, range(step, 60))
            writers[(step + 1) % 5].write(topic, 2 * step, range(step, 60, 7), deleted=True)
            ended.begin()
            ended.write(topic, 2 * step, range(50, 70))
            ended.end(commit=step % 2 == 0)
    for step in (12, 14):  # what is compacted twice has lost its tombstones, if they were not to be kept
        for topic in topics:
            writers[step % 5].write(topic, step, range(100, 110))
        wait_until_cleaned(server.data, topics)


def _second_life(server: ApacheKafka, start_ms: int) -> None:
    """More of everything, under another leader epoch. The open transaction is aborted by its next producer."""
    servers = server.bootstrap_servers
    plain = Writer(servers, start_ms, codec="lz4")
    for topic in TOPICS:
        if topic != "empty":
            plain.write(topic, 20, range(10))
    _delete_records(servers, "deleted", 25)
    fenced = Writer(servers, start_ms, OPEN)
    fenced.begin()
    fenced.write("transactions", 20, range(10, 15))
    fenced.end(commit=True)
    fenced.begin()
    fenced.write("transactions", 20, range(15, 20))
    plain.write("transactions", 20, range(20, 25))
    wait_until_cleaned(server.data, ("compacted", "tombstones-gone"))


def wait_until_cleaned(data: Path, topics: Iterable[str]) -> None:
    """Up to the active segment; nothing else stands in the way."""
    deadline = time.monotonic() + SECONDS_MAX
    checkpoint = OffsetCheckpoint(data / CLEANER_OFFSETS)
    for topic in topics:
        while checkpoint.load().get((topic, 0), 0) < _active_base_offset(data / f"{topic}-0"):
            assert time.monotonic() < deadline, f"{topic} is not compacted"
            time.sleep(0.05)


def _active_base_offset(partition: Path) -> int:
    return max(int(path.name[:20]) for path in partition.iterdir() if re.fullmatch(r"\d{20}\.log", path.name))


def _delete_records(servers: str, topic: str, offset: int) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.delete_records({kafka.TopicPartition(topic, 0): offset})
    finally:
        admin.close()


def _views(servers: str) -> dict[str, View]:
    return views_through(servers, TOPICS)


def topic_id_in(partition: Path) -> UUID:
    match = re.search(r"topic_id: (\S{22})", (partition / "partition.metadata").read_text())
    assert match is not None
    return UUID(bytes=base64.urlsafe_b64decode(match[1] + "=="))


def copied(data: Path, target: Path) -> Path:
    """Kafka allocates its indexes in advance: 20 MB a partition, nearly all of it holes, which stay holes."""
    shutil.copytree(data, target, copy_function=_copy_with_holes)
    return target


def _copy_with_holes(source: str, target: str) -> None:
    data = Path(source).read_bytes()
    with open(target, "wb") as file:
        file.write(data.rstrip(b"\0"))
        file.truncate(len(data))
