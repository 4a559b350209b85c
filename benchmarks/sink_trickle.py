"""Micro-batches at a trickle, from a topic to a topic: what `source_trickle` measures, with a sink behind it."""

from functools import partial
from itertools import count

from pyspark.sql import SparkSession

from benchmarks import source_trickle
from benchmarks.harness import Case, Contender, Figures, Options, Target
from benchmarks.peers import RunningBroker
from benchmarks.source_trickle import P50, P99, RECORDS_PER_SECOND, WARM_UP_BATCHES

NEARLY_AS_FAST = Target(ratio_min=0.87)  # within 1.15 times

_numbers = count()


def cases(session: SparkSession, formats: list[str], broker: RunningBroker, options: Options) -> list[Case]:
    if not options.wants_bytes(100):
        return []
    batches = source_trickle.batches_of(options)
    broker.create_topic(source_trickle.TOPIC)
    return [
        Case(
            f"{RECORDS_PER_SECOND} records/s, from topic to topic, on {broker.name}",
            [Contender(f'format("{name}")', partial(_trickle_on, session, name, broker, batches)) for name in formats],
            (P50, P99),
            {P50.name: NEARLY_AS_FAST},
        )
    ]


def _trickle_on(session: SparkSession, name: str, broker: RunningBroker, batches: int) -> Figures:
    with broker.topic(f"trickled-{next(_numbers)}") as topic:
        sink_options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
        figures = source_trickle.trickle(session, name, broker, batches, name, sink_options)
        written = broker.records_in(topic)
    written_min = WARM_UP_BATCHES + batches  # all of them had rows
    if written < written_min:
        raise RuntimeError(f"{written} records stand in the topic, and {written_min} batches of them were written")
    return figures
