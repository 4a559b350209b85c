"""The broker beside Apache Kafka: Kafka's own tools write to and read from both, in turns, with the same settings.

Each group of cases has brokers of its own, so that memory is that of the group's work and of nothing before it.
"""

from collections.abc import Callable

from benchmarks import broker_consume, broker_growth, broker_heartbeats, broker_latency, broker_produce, broker_start
from benchmarks.harness import Case, Options, Outcome, Result, measure
from benchmarks.peers import RunningBroker, brokers
from tests.support.jars import kafka_classpath

TITLE = "Broker: Kafka's own tools on pylog beside Apache Kafka"
ROUNDS = 3

GROUPS: tuple[Callable[[list[RunningBroker], Options], list[Case]], ...] = (
    broker_produce.cases,
    broker_consume.cases,
    broker_latency.cases,
    broker_heartbeats.cases,
    *broker_growth.CASES,
)


def run(options: Options) -> Outcome:
    kafka_classpath()  # holds the tools too: without it there is nothing to measure with
    skipped: list[str] = []
    results: list[Result] = measure(broker_start.cases(options), options.rounds)
    for group in GROUPS:
        with brokers() as found:
            results += measure(group(found.running, options), options.rounds)
            skipped += [why for why in found.skipped if why not in skipped]
    return Outcome(results, skipped)
