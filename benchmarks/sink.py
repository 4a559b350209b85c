"""Spark writes a topic: `format("pylog")` beside `format("kafka")`, in one session, from the same cached rows."""

import time
from functools import partial
from itertools import count

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import spark
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Outcome, Target, measure, size_name
from benchmarks.peers import PARTITIONS, RunningBroker, brokers

TITLE = 'Spark sink: format("pylog") beside format("kafka"), from cached rows of key and value, local[2]'
ROUNDS = 3
MEASURES = (Measure("rows/s"),)
TARGETS = {"rows/s": Target(ratio_min=1.0)}
COUNTS = {100: 4_000_000, 1000: 1_000_000}  # by the bytes of a value
BATCHED = {"kafka.batch.size": "65536", "kafka.linger.ms": "5"}
WAYS: tuple[tuple[str, str, dict[str, str]], ...] = (  # name, format, settings
    ('format("pylog")', spark.OURS, {}),
    ('format("kafka")', spark.THEIRS, {}),
    ('format("kafka"), 64 KB batches, 5 ms linger', spark.THEIRS, BATCHED),
)

_numbers = count()


def run(options: Options) -> Outcome:
    with brokers() as found, spark.session(found.skipped) as (session, formats):
        results = []
        for value_bytes, whole in COUNTS.items():
            if not options.wants_bytes(value_bytes):
                continue
            rows_count = options.scaled(whole)
            rows = _cached_rows(session, rows_count, value_bytes)
            cases = [
                Case(
                    f"{size_name(value_bytes)}, to {broker.name}",
                    [
                        Contender(name, partial(_write, rows, rows_count, broker, way, settings))
                        for name, way, settings in WAYS
                        if way in formats
                    ],
                    MEASURES,
                    TARGETS,
                )
                for broker in found.running
            ]
            results += measure(cases, options.rounds)
            rows.unpersist(blocking=True)
        return Outcome(results, found.skipped)


def _cached_rows(session: SparkSession, rows_count: int, value_bytes: int) -> DataFrame:
    numbers = session.range(0, rows_count, numPartitions=PARTITIONS)
    key = F.col("id").cast("string").cast("binary").alias("key")
    value = F.lpad(F.col("id").cast("string"), value_bytes, "abcdefgh").cast("binary").alias("value")
    rows = numbers.select(key, value).cache()
    rows.count()
    return rows


def _write(rows: DataFrame, rows_count: int, broker: RunningBroker, way: str, settings: dict[str, str]) -> Figures:
    with broker.topic(f"sink-{next(_numbers)}") as topic:
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, **settings}
        began = time.perf_counter()
        rows.write.format(way).options(**options).mode("append").save()
        seconds = time.perf_counter() - began
        written = broker.records_in(topic)
    if written != rows_count:
        raise RuntimeError(f"{written} records stand in the topic, and {rows_count} rows were written")
    return {"rows/s": rows_count / seconds}
