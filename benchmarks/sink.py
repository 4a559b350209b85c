"""Spark writes a topic: `format("pylog")` beside `format("kafka")`, in one session, the same rows from the same place.

The seconds of CPU are those of Spark and of its Python workers, not the broker's. Reading the rows, from Spark's memory
or from Parquet, is part of every figure. What stands in the topic afterwards is counted.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from pyspark.sql import DataFrame, SparkSession

from benchmarks import ceiling, sink_rows, sink_table, sink_trickle, spark
from benchmarks.harness import (
    Case,
    Contender,
    Figures,
    Measure,
    Options,
    Outcome,
    Result,
    Target,
    across,
    measure,
    size_name,
)
from benchmarks.peers import APACHE_KAFKA, PYLOG, RunningBroker, brokers
from benchmarks.sink_rows import FILES, Rows

TITLE = 'Spark sink: format("pylog") beside format("kafka"), 4 partitions, local[2]; send_table beside confluent-kafka'
ROUNDS = 3
ROWS = Measure("rows/s")
MEGABYTES = Measure("MB/s of values")
CPU = Measure("CPU s a million rows", higher_is_better=False, decimals=2)
ROWS_IN_TRIGGERS = Measure("rows/s within triggers")  # as Spark reports it: without the start of the query
# By the bytes of a value, in memory and in Parquet: a trigger is to last half a second, which is several times its
# beginning, and what a run leaves behind is to be little enough to be there for the next one (`peers`).
COUNTS = {100: 4_000_000, 1000: 500_000}
FILE_COUNTS = {100: 8_000_000, 1000: 1_500_000}
TRIGGERS = 5  # of a stream

OURS, DEFAULT, BATCHED = 'format("pylog")', 'format("kafka")', 'format("kafka"), 64 KB batches, 5 ms linger'
DRAINED = "Arrow batches only drained"
WAYS: dict[str, tuple[str, dict[str, str]]] = {  # format, settings
    OURS: (spark.OURS, {}),
    DEFAULT: (spark.THEIRS, {}),
    BATCHED: (spark.THEIRS, {"kafka.batch.size": "65536", "kafka.linger.ms": "5"}),
    DRAINED: (ceiling.FORMAT, {}),  # for the plain work alone: it is the same for all that write the same rows
}
TARGETS = {
    100: Target(ratio_min={DEFAULT: 1.5, BATCHED: 1.2}),
    1000: Target(ratio_min={DEFAULT: 2.0, BATCHED: 1.4}),
}

_numbers = count()


@dataclass(frozen=True)
class Work:
    """One thing differs from the plain work; in the last, the most that comes together."""

    kind: str
    codec: str = "none"
    has_keys: bool = False

    def name(self, value_bytes: int) -> str:
        """As the tables show it."""
        codec = [] if self.codec == "none" else [self.codec]
        return ", ".join([size_name(value_bytes), *codec, *["keyed"] * self.has_keys, self.kind])


MEMORY, PARQUET, STREAM = "batch from memory", "batch from Parquet", f"stream of {TRIGGERS} triggers from Parquet"
WORKS = (
    Work(MEMORY),
    Work(MEMORY, has_keys=True),
    Work(MEMORY, "lz4"),
    Work(MEMORY, "zstd"),
    Work(PARQUET),
    Work(STREAM),
    Work(STREAM, "zstd", has_keys=True),
)


def run(options: Options) -> Outcome:
    with brokers() as found, spark.session(found.skipped) as (session, formats):
        results = []
        for value_bytes, whole in COUNTS.items():
            if not options.wants_bytes(value_bytes):
                continue
            counts = options.scaled(whole), options.scaled(FILE_COUNTS[value_bytes])
            with sink_rows.prepared(session, *counts, value_bytes) as rows:
                cases = [
                    _case(session, formats, broker, rows if work.kind == MEMORY else rows.of_files, work)
                    for work in WORKS
                    for broker in found.running
                ]
                tables = sink_table.cases(value_bytes, found.running[0], options)
                measured = measure([*cases, *tables], options.rounds)
                results += [
                    *measured[: len(cases)],
                    *_with_own_brokers(measured, WORKS, value_bytes),
                    *measured[len(cases) :],
                ]
        results += measure(sink_trickle.cases(session, formats, found.running[0], options), options.rounds)
        return Outcome(results, found.skipped)


def _case(session: SparkSession, formats: list[str], broker: RunningBroker, rows: Rows, work: Work) -> Case:
    write, measures = WRITES[work.kind]
    contenders = [
        Contender(name, partial(_timed, session, broker, rows, work, write, way, settings))
        for name, (way, settings) in WAYS.items()
        if way in formats or (name == DRAINED and work == Work(work.kind))
    ]
    judged = [measure.name for measure in measures if measure in (ROWS, ROWS_IN_TRIGGERS)]  # a stream by both
    targets = dict.fromkeys(judged, TARGETS[rows.value_bytes])
    return Case(f"{work.name(rows.value_bytes)}, to {broker.name}", contenders, measures, targets)


def _with_own_brokers(measured: Sequence[Result], works: Sequence[Work], value_bytes: int) -> list[Result]:
    """pylog's sink to pylog beside Spark's to Apache Kafka: what a user has who takes one in place of the other."""
    by_name = {result.case.name: result for result in measured}
    found = []
    for work in works:
        name = work.name(value_bytes)
        ours, theirs = by_name[f"{name}, to {PYLOG}"], by_name.get(f"{name}, to {APACHE_KAFKA}")
        if theirs is not None:
            found.append(across(f"{name}, each to its own broker", ours, theirs, (DEFAULT, BATCHED)))
    return found


def _timed(
    session: SparkSession,
    broker: RunningBroker,
    rows: Rows,
    work: Work,
    write: "Write",
    way: str,
    settings: dict[str, str],
) -> Figures:
    with broker.topic(f"sink-{next(_numbers)}") as topic:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": topic,
            "kafka.compression.type": work.codec,
            **settings,
        }
        cpu, began = spark.cpu_seconds(session), time.perf_counter()
        of_its_own = write(session, rows, work, way, options)
        seconds, cpu_seconds = time.perf_counter() - began, spark.cpu_seconds(session) - cpu
        written = broker.records_in(topic)
    if written != rows.count and way != ceiling.FORMAT:
        raise RuntimeError(f"{written} records stand in the topic, and {rows.count} rows were written")
    return {
        ROWS.name: rows.count / seconds,
        MEGABYTES.name: rows.megabytes / seconds,
        CPU.name: cpu_seconds / (rows.count / 1e6),
        **of_its_own,
    }


def _from_memory(session: SparkSession, rows: Rows, work: Work, way: str, options: dict[str, str]) -> Figures:
    _columns(rows.cached, work).write.format(way).options(**options).mode("append").save()
    return {}


def _from_parquet(session: SparkSession, rows: Rows, work: Work, way: str, options: dict[str, str]) -> Figures:
    found = session.read.schema(rows.cached.schema).parquet(rows.parquet)
    _columns(found, work).write.format(way).options(**options).mode("append").save()
    return {}


def _stream(session: SparkSession, rows: Rows, work: Work, way: str, options: dict[str, str]) -> Figures:
    files = session.readStream.schema(rows.cached.schema).option("maxFilesPerTrigger", -(-FILES // TRIGGERS))
    with tempfile.TemporaryDirectory(prefix="pylog-bench-") as checkpoint:
        query = (
            _columns(files.parquet(rows.parquet), work)
            .writeStream.format(way)
            .options(**options)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        milliseconds = [trigger["durationMs"]["triggerExecution"] for trigger in query.recentProgress]
    return {ROWS_IN_TRIGGERS.name: rows.count / (sum(milliseconds) / 1000)}


def _columns(rows: DataFrame, work: Work) -> DataFrame:
    return rows.select("key", "value") if work.has_keys else rows.select("value")


Write = Callable[[SparkSession, Rows, Work, str, dict[str, str]], Figures]
WRITES: dict[str, tuple[Write, tuple[Measure, ...]]] = {
    MEMORY: (_from_memory, (ROWS, MEGABYTES, CPU)),
    PARQUET: (_from_parquet, (ROWS, MEGABYTES, CPU)),
    STREAM: (_stream, (ROWS, MEGABYTES, CPU, ROWS_IN_TRIGGERS)),
}
