"""Writing: Kafka's own ProducerPerformance, and what it costs each broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from benchmarks import kafka_tools
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target
from benchmarks.kafka_tools import Load
from benchmarks.peers import PARTITIONS, RunningBroker

RATE = Measure("records/s in")
CPU = Measure("broker CPU s/GB in", higher_is_better=False, decimals=2)
BATCHED = ("batch.size=65536", "linger.ms=5")
UNBATCHED = ("batch.size=1", "linger.ms=0", "acks=1")
CPU_TARGET = Target(ratio_min=1.67)  # 0.6 of the peer's
DEFAULT_TARGETS = {RATE.name: Target(ratio_min=1.0), CPU.name: CPU_TARGET}
BATCHED_TARGETS = {RATE.name: Target(ratio_min=1.1), CPU.name: CPU_TARGET}
UNBATCHED_TARGETS = {RATE.name: Target(ratio_min=1.5)}


@dataclass(frozen=True)
class Work:
    load: Load
    targets: Mapping[str, Target] = field(default_factory=dict)
    partitions: int = PARTITIONS


# A request takes a batch of every partition that has one: only with one partition is a record alone.
WORKS = {
    "100 B, default batching, acks=all": Work(Load(3_000_000, 100), DEFAULT_TARGETS),
    "100 B, 64 KB batches, 5 ms linger": Work(Load(3_000_000, 100, BATCHED), BATCHED_TARGETS),
    "1 KB, default batching, acks=all": Work(Load(400_000, 1000), DEFAULT_TARGETS),
    "1 KB, 64 KB batches, 5 ms linger": Work(Load(400_000, 1000, BATCHED), BATCHED_TARGETS),
    "100 B, unbatched, a record a request, acks=1": Work(Load(100_000, 100, UNBATCHED), UNBATCHED_TARGETS, 1),
    "100 B, unbatched, a record of each partition a request, acks=1": Work(Load(200_000, 100, UNBATCHED)),
}

_numbers = count()


def cases(running: list[RunningBroker], options: Options) -> list[Case]:
    return [
        Case(
            name,
            [
                Contender(broker.name, partial(_send, broker, _scaled(work.load, options), work.partitions))
                for broker in running
            ],
            (RATE, CPU),
            work.targets,
        )
        for name, work in WORKS.items()
        if options.wants_bytes(work.load.value_bytes)
    ]


def _scaled(load: Load, options: Options) -> Load:
    return replace(load, count=options.scaled(load.count))


def _send(broker: RunningBroker, load: Load, partitions: int) -> Figures:
    with broker.topic(f"produce-{next(_numbers)}", partitions) as topic:
        cpu = broker.cpu_seconds()
        rate = kafka_tools.send(broker.bootstrap_servers, topic, load).records_per_second
        return {RATE.name: rate, CPU.name: (broker.cpu_seconds() - cpu) / load.gigabytes}
