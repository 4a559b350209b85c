"""Compaction beside the cleaner of a running Apache Kafka, on the same segments, half of whose records are garbage.

Kafka is given a topic for every run. It cleans none of them as long as `min.cleanable.dirty.ratio` is 1; setting one
to 0 lets its cleaner loose on that topic alone. Its CPU time is that of its cleaner's thread.
"""

import contextlib
import os
import re
import resource
import shutil
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target, say, size_name
from benchmarks.peers import APACHE_KAFKA, KAFKA_HEAP, PEER_UNAVAILABLE, PYLOG, librdkafka
from benchmarks.storage_logs import MB
from pylog.connector.columnar.encode import RowEncoder
from pylog.storage import codecs
from pylog.storage.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, OffsetCheckpoint
from pylog.storage.cleaner_process import run_cleaner
from pylog.storage.compaction import CleaningPlan, Dirt, remove_cleaned
from pylog.storage.compaction_job import plan_for
from pylog.storage.disk import DISK
from pylog.storage.kernels.cleaner import clean
from pylog.storage.log import LogConfig, PartitionLog
from tests.support.apache_kafka import ApacheKafka, ApacheKafkaFailed
from tests.support.partition_views import create_topics, wait_for_leaders

PER_CORE = Measure("compaction MB/s per core")
WALL = Measure("compaction MB/s")
WHOLE_RUN = Measure("compaction CPU s, a process for it included", higher_is_better=False, decimals=2)
MEASURES = (PER_CORE, WALL, WHOLE_RUN)
TARGETS = {PER_CORE.name: Target(ratio_min=1.0)}

LOG_BYTES = 256 * MB  # before compression
VALUE_BYTES = (100, 1000)
CODECS = {"uncompressed": codecs.NONE, "lz4": codecs.LZ4}
BATCH_BYTES = 16_384  # before compression, as producers have it by default
SEGMENT_BYTES = 64 << 20
DEDUPE_BUFFER_BYTES = 128 << 20  # log.cleaner.dedupe.buffer.size, by default
DRAWS_PER_KEY = 1.594  # so many random draws from so many keys leave one record in two: (1 - e^-x) / x = 1/2
CHUNK_BYTES = 16 * MB  # of values, made at a time

CLEANER_THREAD = "kafka-log-cleaner-thread-0"[:15]  # as Linux keeps it
CLEANED_LINES = re.compile(
    r"(?P<topic>\S+)-0 .*\n"
    r".* processed in (?P<seconds>[\d,.]+) seconds.*\n"
    r"(?:.*\n){0,6}?"
    r".*End size: .*\((?P<records>[\d,]+) messages\)"
)
CLEAN_SECONDS_MAX = 120
POLL_SECONDS = 0.02
KAFKA_SETTINGS = {"log.cleaner.backoff.ms": "100", "log.retention.ms": "-1"}
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",
    "segment.bytes": str(SEGMENT_BYTES),
}


class Data(NamedTuple):
    """A log to clean. All of it but the active segment, which is empty, is dirty."""

    plan: CleaningPlan
    size_bytes: int
    key_count: int  # as many records are to be left


@contextlib.contextmanager
def cases(folder: Path, options: Options, skipped: list[str]) -> Iterator[list[Case]]:
    """For as long as Kafka runs."""
    data = {
        f"{size_name(value_bytes)}, {codec}": make_log(
            folder / f"{codec}-{value_bytes}", options.scaled(LOG_BYTES), value_bytes, CODECS[codec]
        )
        for value_bytes in VALUE_BYTES
        for codec in CODECS
        if options.wants_bytes(value_bytes)
    }
    os.sync()
    with contextlib.ExitStack() as stack:
        kafka = None
        try:
            kafka = stack.enter_context(KafkaCleaner.on(data, options.rounds + 1))
        except PEER_UNAVAILABLE as error:
            skipped.append(f"{APACHE_KAFKA}: {error}")
            say(f"  skipped: {skipped[-1]}")
        made = []
        for name, one in data.items():
            contenders = [Contender(PYLOG, partial(_clean, one))]
            if kafka is not None:
                contenders.append(Contender(APACHE_KAFKA, partial(kafka.clean, name)))
            made.append(Case(f"compaction, {name}", contenders, MEASURES, TARGETS))
        yield made


# -- ours


def make_log(directory: Path, size_bytes: int, value_bytes: int, codec: int) -> Data:
    """Keys are drawn at random, so that good records and garbage lie side by side; half of a value compresses."""
    say(f"  making a log to compact: {directory.name}")
    random = np.random.default_rng(0)
    records = max(10, size_bytes // value_bytes)
    drawn = np.zeros(max(1, round(records / DRAWS_PER_KEY)), bool)  # by key
    log = PartitionLog(directory, LogConfig(segment_bytes=SEGMENT_BYTES))
    encoder = RowEncoder(codec, batch_size_bytes=BATCH_BYTES)
    left = records
    while left:
        rows = min(left, max(1, CHUNK_BYTES // value_bytes))
        left -= rows
        values = random.integers(0, 256, (rows, value_bytes), np.uint8)
        values[:, value_bytes // 2 :] = ord("-")
        keys = random.integers(0, len(drawn), rows)
        drawn[keys] = True
        table = pa.table({"key": [b"%016d" % key for key in keys.tolist()], "value": _binary(values)})
        for batch in encoder.encode(table, np.zeros(rows, np.int32)):
            log.append(batch.records, 0)
    log.roll()
    end_offset, log_bytes = log.log_end_offset, log.size_bytes
    dirt = Dirt(0, end_offset, 0, log_bytes, due=True)
    plan = plan_for(log, dirt, int(time.time() * 1000), DEDUPE_BUFFER_BYTES)
    log.close()
    return Data(plan, log_bytes, int(drawn.sum()))


def _binary(values: np.ndarray) -> pa.Array:
    rows, width = values.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _clean(data: Data) -> Figures:
    """In this process, where everything is loaded; and once more in one of its own, as a broker has it done."""
    try:
        began, cpu_began = time.perf_counter(), time.process_time()
        result = clean(data.plan)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        if result.records_after != data.key_count:
            raise RuntimeError(f"{result.records_after} records are left of {data.key_count} keys")
        cpu_began = _cpu_of_children()
        run_cleaner(data.plan)
        whole_run = _cpu_of_children() - cpu_began
    finally:
        remove_cleaned(data.plan.directory, DISK)
    return _figures(data, seconds, cpu_seconds) | {WHOLE_RUN.name: whole_run}


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _figures(data: Data, seconds: float, cpu_seconds: float) -> dict[str, float]:
    megabytes = data.size_bytes / MB
    return {PER_CORE.name: megabytes / cpu_seconds, WALL.name: megabytes / seconds}


# -- Kafka's


class KafkaCleaner:
    def __init__(self, kafka: ApacheKafka, data: Mapping[str, Data]) -> None:
        self._kafka = kafka
        self._data = data
        self._admin = AdminClient(librdkafka(kafka.bootstrap_servers))
        self._runs = {name: count() for name in data}
        self._checkpoint = OffsetCheckpoint(kafka.data / CLEANER_OFFSETS)

    @classmethod
    @contextlib.contextmanager
    def on(cls, data: Mapping[str, Data], runs: int) -> Iterator["KafkaCleaner"]:
        """Topics are created by Kafka and filled while it is down."""
        topics = {topic_of(name, run): one for name, one in data.items() for run in range(runs)}
        with ApacheKafka(KAFKA_SETTINGS, heap=KAFKA_HEAP) as kafka:
            create_topics(kafka.bootstrap_servers, dict.fromkeys(topics, TOPIC_SETTINGS))
            kafka.stop()
            for topic, one in topics.items():
                give_segments(one.plan.directory, kafka.data / f"{topic}-0")
            flushed = OffsetCheckpoint(kafka.data / RECOVERY_POINTS)
            flushed.store(flushed.load() | {(topic, 0): one.plan.end_offset for topic, one in topics.items()})
            kafka.start()
            wait_for_leaders(kafka.bootstrap_servers, topics)
            yield cls(kafka, data)

    def clean(self, name: str) -> Figures:
        data, topic = self._data[name], topic_of(name, next(self._runs[name]))
        thread = cleaner_thread(self._kafka.pid)
        cpu_began = cpu_seconds_of(thread)
        self._let_loose(topic)
        self._wait_until_cleaned(topic, data.plan.end_offset)
        cpu_seconds = cpu_seconds_of(thread) - cpu_began
        seconds, records_left = runs_in(self._kafka.log.read_text(errors="replace"))[topic]
        if records_left != data.key_count:
            raise RuntimeError(f"Kafka left {records_left} records of {data.key_count} keys")
        return _figures(data, seconds, cpu_seconds) | {WHOLE_RUN.name: cpu_seconds}

    def _let_loose(self, topic: str) -> None:
        entry = ConfigEntry("min.cleanable.dirty.ratio", "0.0", incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([wanted]).values():
            future.result(CLEAN_SECONDS_MAX)

    def _wait_until_cleaned(self, topic: str, end_offset: int) -> None:
        deadline = time.monotonic() + CLEAN_SECONDS_MAX
        while self._checkpoint.load().get((topic, 0), 0) < end_offset:
            if time.monotonic() > deadline:
                raise ApacheKafkaFailed(f"{topic} is not clean after {CLEAN_SECONDS_MAX} s")
            time.sleep(POLL_SECONDS)


def runs_in(server_log: str) -> dict[str, tuple[float, int]]:
    """(seconds, records that were left) of Kafka's cleaner, by topic; it says so before it stores how far it came."""
    runs = map(CLEANED_LINES.match, server_log.split(" cleaned log ")[1:])
    return {
        run["topic"]: (float(run["seconds"].replace(",", "")), int(run["records"].replace(",", "")))
        for run in runs
        if run is not None
    }


def topic_of(name: str, run: int) -> str:
    return f"{re.sub('[^A-Za-z0-9]+', '-', name)}-{run}"


def give_segments(source: Path, target: Path) -> None:
    """The sealed logs are never written to, so the same bytes serve all; of everything else Kafka gets its own."""
    active = max(path.name for path in source.glob("*.log"))
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.suffix == ".log" and path.name != active:
            os.link(path, target / path.name)
        elif path.name != "partition.metadata":
            shutil.copyfile(path, target / path.name)


def cleaner_thread(pid: int) -> Path:
    """Its folder under /proc."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().strip() == CLEANER_THREAD:
                return task
    raise ApacheKafkaFailed(f"process {pid} has no thread {CLEANER_THREAD}, or there is no /proc to tell")


def cpu_seconds_of(thread: Path) -> float:
    return int((thread / "schedstat").read_text().split()[0]) / 1e9
