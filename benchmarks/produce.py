"""Writing: Kafka's own ProducerPerformance on pylog beside Apache Kafka, and what it costs each broker."""

from dataclasses import replace
from functools import partial
from itertools import count

from benchmarks import producer_performance
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Outcome, Target, measure
from benchmarks.peers import RunningBroker, brokers
from benchmarks.producer_performance import Load
from tests.support.jars import kafka_classpath

TITLE = "Produce: Kafka's ProducerPerformance, 4 partitions"
ROUNDS = 5
MEASURES = (
    Measure("records/s"),
    Measure("broker CPU s", higher_is_better=False, decimals=2),
)
TARGETS = {"records/s": Target(ratio_min=0.9)}
LOADS = {
    "100 B, default batching, acks=all": Load(3_000_000, 100),
    "100 B, 64 KB batches, 5 ms linger": Load(3_000_000, 100, ("batch.size=65536", "linger.ms=5")),
    "1 KB, default batching": Load(400_000, 1000),
    "1 KB, 64 KB batches, 5 ms linger": Load(400_000, 1000, ("batch.size=65536", "linger.ms=5")),
    "100 B, unbatched, acks=1": Load(50_000, 100, ("batch.size=1", "linger.ms=0", "acks=1")),
}

_numbers = count()


def run(options: Options) -> Outcome:
    kafka_classpath()  # holds the producer too: without it there is nothing to measure with
    with brokers() as found:
        return Outcome(measure(_cases(found.running, options), options.rounds), found.skipped)


def _cases(running: list[RunningBroker], options: Options) -> list[Case]:
    return [
        Case(
            name,
            [
                Contender(broker.name, partial(_send, broker, replace(load, count=options.scaled(load.count))))
                for broker in running
            ],
            MEASURES,
            TARGETS,
        )
        for name, load in LOADS.items()
        if options.wants_bytes(load.value_bytes)
    ]


def _send(broker: RunningBroker, load: Load) -> Figures:
    with broker.topic(f"produce-{next(_numbers)}") as topic:
        cpu = broker.cpu_seconds()
        rate = producer_performance.send(broker.bootstrap_servers, topic, load)
        return {"records/s": rate, "broker CPU s": broker.cpu_seconds() - cpu}
