"""Spark reads a topic: `format("pylog")` beside `format("kafka")`, in one session, from the same topic.

The rows go to Spark's noop sink, which takes every column of every row and keeps none. The seconds of CPU are those of
Spark and of its Python workers, not the broker's.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from benchmarks import ceiling, source_memory, source_trickle, spark
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Outcome, Result, Target, measure
from benchmarks.peers import RunningBroker, brokers
from benchmarks.source_topics import Topic

TITLE = 'Spark source: format("pylog") beside format("kafka"), to noop, 4 partitions, local[2]'
ROUNDS = 3
ROWS = Measure("rows/s")
MEGABYTES = Measure("MB/s of values")
CPU = Measure("CPU s a million rows", higher_is_better=False, decimals=2)
ROWS_IN_TRIGGERS = Measure("rows/s within triggers")  # as Spark reports it: without the start of the query
START = Measure("s of a query outside of its triggers", higher_is_better=False, decimals=2)
KAFKA, READY = 'format("kafka")', "Arrow batches ready"
TARGETS = {100: Target(ratio_min={KAFKA: 2.5}), 1000: Target(ratio_min={KAFKA: 1.6})}  # by the bytes of a value
PROJECTED_TARGETS = {100: Target(ratio_min={KAFKA: 4.0})}
COUNTS = {100: 4_000_000, 1000: 1_000_000}
PLAIN_COUNTS = {100: 12_000_000, 1000: 4_000_000}  # what is streamed: a query's start is not to be what is measured
CODECS = ("lz4", "zstd")
PARTITION_COUNTS = (1, 200)
TRIGGERS = 5  # of the stream


def run(options: Options) -> Outcome:
    with brokers() as found, spark.session(found.skipped) as (session, formats):
        results: list[Result] = []
        for value_bytes in filter(options.wants_bytes, COUNTS):
            results += _of_size(session, formats, found.running, value_bytes, options)
        results += measure(source_trickle.cases(session, formats, found.running, options), options.rounds)
        results += measure(source_memory.cases(session, found.running[0], options), options.rounds)
        return Outcome(results, found.skipped)


def _of_size(
    session: SparkSession, formats: list[str], running: list[RunningBroker], value_bytes: int, options: Options
) -> list[Result]:
    """With its topics, which go before the next size comes: together they would leave no memory to anybody else."""
    cases: list[Case] = []
    with contextlib.ExitStack() as filled:
        for topic in _topics(options, value_bytes):
            is_plain = _is_plain(topic)
            for broker in running if is_plain else running[:1]:
                filled.enter_context(topic.filled(session, broker))
                reads = READS if is_plain else {"batch": READS["batch"]}
                for kind, (read, measures) in reads.items():
                    cases.append(_case(session, formats, kind, read, measures, broker, topic))
        os.sync()  # lest the system writes to the disk what was just loaded while others are measured
        return measure(cases, options.rounds)


def _topics(options: Options, value_bytes: int) -> list[Topic]:
    count = options.scaled(COUNTS[value_bytes])
    topics = [Topic(options.scaled(PLAIN_COUNTS[value_bytes]), value_bytes)]
    topics += [Topic(count, value_bytes, codec) for codec in CODECS]
    topics += [Topic(count, value_bytes, has_keys=True), Topic(count, value_bytes, has_headers=True)]
    if value_bytes == min(COUNTS):
        topics += [Topic(count, value_bytes, partitions=number) for number in PARTITION_COUNTS]
    return topics


def _is_plain(topic: Topic) -> bool:
    return topic == Topic(topic.count, topic.value_bytes)


def _case(
    session: SparkSession,
    formats: list[str],
    kind: str,
    read: "Read",
    measures: tuple[Measure, ...],
    broker: RunningBroker,
    topic: Topic,
) -> Case:
    contenders = [Contender(f'format("{name}")', partial(read, session, name, broker, topic)) for name in formats]
    if _is_plain(topic):
        contenders.append(Contender(READY, partial(read, session, ceiling.FORMAT, broker, topic)))
    count = topic.partitions
    partitions = "" if count == Topic.partitions else f", {count} partition{'s' * (count != 1)}"
    target = (PROJECTED_TARGETS if kind == PROJECTED else TARGETS).get(topic.value_bytes)
    judged = [measure.name for measure in measures if measure in (ROWS, ROWS_IN_TRIGGERS)]  # a stream by both
    targets = {} if target is None else dict.fromkeys(judged, target)
    return Case(f"{topic.name}{partitions}, {kind}, on {broker.name}", contenders, measures, targets)


def _options(name: str, broker: RunningBroker, topic: Topic) -> dict[str, str]:
    if name == ceiling.FORMAT:
        return {"rows": str(topic.count), "valueBytes": str(topic.value_bytes), "partitions": str(topic.partitions)}
    headers = {"includeHeaders": "true"} if topic.has_headers else {}
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic.topic,
        "startingOffsets": "earliest",
        **headers,
    }


def _batch(session: SparkSession, name: str, broker: RunningBroker, topic: Topic) -> Figures:
    return _timed(session, topic, session.read.format(name).options(**_options(name, broker, topic)).load)


def _projected(session: SparkSession, name: str, broker: RunningBroker, topic: Topic) -> Figures:
    """The values alone: Python sources are told by a schema, Spark's own prunes the columns by itself."""
    read = session.read.format(name).options(**_options(name, broker, topic))
    if name != spark.THEIRS:
        read = read.schema("value binary")
    return _timed(session, topic, lambda: read.load().select("value"))


def _timed(session: SparkSession, topic: Topic, rows: Callable[[], DataFrame]) -> Figures:
    cpu, began = spark.cpu_seconds(session), time.perf_counter()
    rows().write.format("noop").mode("overwrite").save()
    return _figures(topic, time.perf_counter() - began, spark.cpu_seconds(session) - cpu)


def _figures(topic: Topic, seconds: float, cpu_seconds: float) -> dict[str, float]:
    return {
        ROWS.name: topic.count / seconds,
        MEGABYTES.name: topic.megabytes / seconds,
        CPU.name: cpu_seconds / (topic.count / 1e6),
    }


def _stream(session: SparkSession, name: str, broker: RunningBroker, topic: Topic) -> Figures:
    with tempfile.TemporaryDirectory(prefix="pylog-bench-") as checkpoint:
        cpu, began = spark.cpu_seconds(session), time.perf_counter()
        rows = session.readStream.format(name).options(**_options(name, broker, topic))
        query = (
            rows.option("maxOffsetsPerTrigger", -(-topic.count // TRIGGERS) + topic.partitions)  # rounded one by one
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds, cpu_seconds = time.perf_counter() - began, spark.cpu_seconds(session) - cpu
        triggers = query.recentProgress
    read = sum(trigger["numInputRows"] for trigger in triggers)
    if read != topic.count:
        raise RuntimeError(f'a stream of format("{name}") gave {read} of {topic.count} rows')
    in_triggers = sum(trigger["durationMs"]["triggerExecution"] for trigger in triggers) / 1000
    return {
        **_figures(topic, seconds, cpu_seconds),
        ROWS_IN_TRIGGERS.name: topic.count / in_triggers,
        START.name: seconds - in_triggers,
    }


PROJECTED = "batch, value only"
Read = Callable[[SparkSession, str, RunningBroker, Topic], Figures]
READS: dict[str, tuple[Read, tuple[Measure, ...]]] = {
    "batch": (_batch, (ROWS, MEGABYTES, CPU)),
    PROJECTED: (_projected, (ROWS, MEGABYTES, CPU)),
    f"stream of {TRIGGERS} triggers": (_stream, (ROWS, MEGABYTES, CPU, ROWS_IN_TRIGGERS, START)),
}
