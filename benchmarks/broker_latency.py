"""How long a record takes on a broker that is not busy, and the memory that this takes."""

from functools import partial
from itertools import count

from benchmarks import kafka_tools
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target
from benchmarks.kafka_tools import Load
from benchmarks.peers import MemoryPeak, RunningBroker

AVERAGE = Measure("average ms", higher_is_better=False, decimals=2)
P50 = Measure("p50 ms", higher_is_better=False, decimals=1)
P99 = Measure("p99 ms", higher_is_better=False, decimals=1)
MEMORY = Measure("memory under load MB", higher_is_better=False)
VALUE_BYTES = 100
END_TO_END_COUNT = 10_000
STEADY = Load(100_000, VALUE_BYTES, records_per_second=5_000)
NO_WORSE = Target(ratio_min=1.0)

_numbers = count()


def cases(running: list[RunningBroker], options: Options) -> list[Case]:
    if not options.wants_bytes(VALUE_BYTES):
        return []
    steady = Load(options.scaled(STEADY.count), STEADY.value_bytes, (), STEADY.records_per_second)
    return [
        Case(
            f"{STEADY.records_per_second:,} records/s, ProducerPerformance",
            [Contender(broker.name, partial(_steady, broker, steady)) for broker in running],
            (P50, P99, MEMORY),
            {P99.name: NO_WORSE, MEMORY.name: Target(value_max=150)},
        ),
        Case(
            "one record after the other, EndToEndLatency",
            [
                Contender(broker.name, partial(_end_to_end, broker, options.scaled(END_TO_END_COUNT)))
                for broker in running
            ],
            (AVERAGE, P50, P99),
            {AVERAGE.name: NO_WORSE, P50.name: NO_WORSE, P99.name: NO_WORSE},
        ),
    ]


def _steady(broker: RunningBroker, load: Load) -> Figures:
    with broker.topic(f"steady-{next(_numbers)}") as topic, MemoryPeak(broker.pid) as memory:
        sent = kafka_tools.send(broker.bootstrap_servers, topic, load)
        return {P50.name: sent.p50_ms, P99.name: sent.p99_ms, MEMORY.name: memory.most_mb()}


def _end_to_end(broker: RunningBroker, records: int) -> Figures:
    with broker.topic(f"end-to-end-{next(_numbers)}", partitions=1) as topic:
        found = kafka_tools.end_to_end(broker.bootstrap_servers, topic, records, VALUE_BYTES)
        return {AVERAGE.name: found.average_ms, P50.name: found.p50_ms, P99.name: found.p99_ms}
