"""Spark reads a topic: `format("pylog")` beside `format("kafka")`, in one session, from the same topic.

The rows go to Spark's noop sink, which takes every column of every row and keeps none.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from benchmarks import kafka_tools, spark
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Outcome, Target, measure, say, size_name
from benchmarks.kafka_tools import Load
from benchmarks.peers import PARTITIONS, RunningBroker, brokers

TITLE = 'Spark source: format("pylog") beside format("kafka"), to noop, 4 partitions, local[2]'
ROUNDS = 3
ROWS = Measure("rows/s")
ROWS_IN_TRIGGERS = Measure("rows/s within triggers")  # as Spark reports it: without the start of the query
TARGETS = {100: Target(ratio_min=2.0), 1000: Target(ratio_min=1.3)}  # by the bytes of a value
COUNTS = {100: 4_000_000, 1000: 1_000_000}
BATCHED = ("batch.size=65536", "linger.ms=5")
TRIGGERS = 5  # of the stream


def run(options: Options) -> Outcome:
    with brokers() as found, spark.session(found.skipped) as (session, formats):
        cases = []
        for value_bytes, whole in COUNTS.items():
            if not options.wants_bytes(value_bytes):
                continue
            load = Load(options.scaled(whole), value_bytes, BATCHED)
            for broker in found.running:
                topic = f"source-{value_bytes}"
                _fill(session, broker, topic, load)
                for kind, (read, measures) in READS.items():
                    contenders = [
                        Contender(f'format("{name}")', partial(read, session, name, broker, topic, load.count))
                        for name in formats
                    ]
                    case = f"{size_name(value_bytes)}, {kind}, on {broker.name}"
                    targets = {one.name: TARGETS[value_bytes] for one in measures}
                    cases.append(Case(case, contenders, measures, targets))
        return Outcome(measure(cases, options.rounds), found.skipped)


def _fill(session: SparkSession, broker: RunningBroker, topic: str, load: Load) -> None:
    say(f"  loading {load.count:,} records of {load.value_bytes} B into {broker.name}")
    broker.create_topic(topic)
    kafka_tools.send(broker.bootstrap_servers, topic, load)
    read = session.read.format(spark.OURS).options(**_options(broker, topic)).load().count()
    if read != load.count:
        raise RuntimeError(f"{broker.name} gives {read} of {load.count} records back")


def _options(broker: RunningBroker, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def _batch(session: SparkSession, name: str, broker: RunningBroker, topic: str, count: int) -> Figures:
    began = time.perf_counter()
    rows = session.read.format(name).options(**_options(broker, topic)).load()
    rows.write.format("noop").mode("overwrite").save()
    return {ROWS.name: count / (time.perf_counter() - began)}


def _stream(session: SparkSession, name: str, broker: RunningBroker, topic: str, count: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="pylog-bench-") as checkpoint:
        began = time.perf_counter()
        rows = session.readStream.format(name).options(**_options(broker, topic))
        query = (
            rows.option("maxOffsetsPerTrigger", -(-count // TRIGGERS) + PARTITIONS)  # which are rounded one by one
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - began
        triggers = query.recentProgress
    read = sum(trigger["numInputRows"] for trigger in triggers)
    if read != count:
        raise RuntimeError(f'a stream of format("{name}") gave {read} of {count} rows')
    in_triggers = sum(trigger["durationMs"]["triggerExecution"] for trigger in triggers) / 1000
    return {ROWS.name: count / seconds, ROWS_IN_TRIGGERS.name: count / in_triggers}


READS: dict[str, tuple[Callable[[SparkSession, str, RunningBroker, str, int], Figures], tuple[Measure, ...]]] = {
    "batch": (_batch, (ROWS,)),
    f"stream of {TRIGGERS} triggers": (_stream, (ROWS, ROWS_IN_TRIGGERS)),
}
