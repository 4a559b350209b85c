"""Micro-batches at a trickle: a few records at a time, and how long Spark takes for each batch of them.

A micro-batch is as long as Spark says (`triggerExecution`), of those that had rows."""

import statistics
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target
from benchmarks.peers import RunningBroker, librdkafka

P50 = Measure("p50 ms of a micro-batch", higher_is_better=False)
P99 = Measure("p99 ms of a micro-batch", higher_is_better=False)
NO_WORSE = Target(ratio_min=0.95)  # within 1.05 times
TOPIC = "trickle"
BATCHES = 60
WARM_UP_BATCHES = 10  # Python starts, Java compiles
RECORDS_PER_SECOND = 50
SECONDS_MAX = 120


def cases(session: SparkSession, formats: list[str], running: list[RunningBroker], options: Options) -> list[Case]:
    if not options.wants_bytes(100):
        return []
    batches = batches_of(options)
    for broker in running:
        broker.create_topic(TOPIC)
    return [
        Case(
            f"{RECORDS_PER_SECOND} records/s, on {broker.name}",
            [Contender(f'format("{name}")', partial(trickle, session, name, broker, batches)) for name in formats],
            (P50, P99),
            {P50.name: NO_WORSE, P99.name: NO_WORSE},
        )
        for broker in running
    ]


def batches_of(options: Options) -> int:
    return max(WARM_UP_BATCHES, options.scaled(BATCHES))


def trickle(
    session: SparkSession,
    name: str,
    broker: RunningBroker,
    batches: int,
    sink: str = "noop",
    sink_options: Mapping[str, str] = MappingProxyType({}),
) -> Figures:
    """So many micro-batches with rows, behind those that warm up, from the topic to the sink."""
    end = threading.Event()
    producer = threading.Thread(target=_produce, args=(broker, end), daemon=True)
    with tempfile.TemporaryDirectory(prefix="pylog-bench-") as checkpoint:
        rows = session.readStream.format(name).option("kafka.bootstrap.servers", broker.bootstrap_servers)
        query = (
            rows.option("subscribe", TOPIC)
            .load()
            .writeStream.format(sink)
            .options(**sink_options)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        producer.start()
        try:
            durations_ms = _durations_ms(query, WARM_UP_BATCHES + batches)[WARM_UP_BATCHES:]
            end.set()
            producer.join()
            query.processAllAvailable()  # a batch that is cut off is an error in Spark's log
        finally:
            end.set()
            query.stop()
            producer.join()
    return {P50.name: statistics.median(durations_ms), P99.name: statistics.quantiles(durations_ms, n=100)[98]}


def _durations_ms(query: StreamingQuery, count: int) -> list[int]:
    """Of the first so many batches with rows."""
    found: dict[int, int] = {}
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        if time.monotonic() > deadline or not query.isActive:
            raise RuntimeError(f"{len(found)} of {count} micro-batches came; {query.exception()}")
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                found[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        time.sleep(0.5)
    return [found[number] for number in sorted(found)][:count]


def _produce(broker: RunningBroker, end: threading.Event) -> None:
    producer = Producer(librdkafka(broker.bootstrap_servers))
    while not end.wait(1 / RECORDS_PER_SECOND):
        producer.produce(TOPIC, bytes(100))
        producer.poll(0)
    producer.flush(10)
