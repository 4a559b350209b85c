"""Writing: Kafka's own ProducerPerformance, and what it costs each broker."""

from dataclasses import replace
from functools import partial
from itertools import count

from benchmarks import kafka_tools
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target
from benchmarks.kafka_tools import Load
from benchmarks.peers import RunningBroker

RATE = Measure("records/s in")
CPU = Measure("broker CPU s/GB in", higher_is_better=False, decimals=2)
BATCHED = ("batch.size=65536", "linger.ms=5")
UNBATCHED = ("batch.size=1", "linger.ms=0", "acks=1")
CPU_TARGET = Target(ratio_min=1.67)  # 0.6 of the peer's
DEFAULT_TARGETS = {RATE.name: Target(ratio_min=1.0), CPU.name: CPU_TARGET}
BATCHED_TARGETS = {RATE.name: Target(ratio_min=1.1), CPU.name: CPU_TARGET}
LOADS = {
    "100 B, default batching, acks=all": (Load(3_000_000, 100), DEFAULT_TARGETS),
    "100 B, 64 KB batches, 5 ms linger": (Load(3_000_000, 100, BATCHED), BATCHED_TARGETS),
    "1 KB, default batching, acks=all": (Load(400_000, 1000), DEFAULT_TARGETS),
    "1 KB, 64 KB batches, 5 ms linger": (Load(400_000, 1000, BATCHED), BATCHED_TARGETS),
    "100 B, unbatched, acks=1": (Load(200_000, 100, UNBATCHED), {RATE.name: Target(ratio_min=1.5)}),
}

_numbers = count()


def cases(running: list[RunningBroker], options: Options) -> list[Case]:
    return [
        Case(
            name,
            [
                Contender(broker.name, partial(_send, broker, replace(load, count=options.scaled(load.count))))
                for broker in running
            ],
            (RATE, CPU),
            targets,
        )
        for name, (load, targets) in LOADS.items()
        if options.wants_bytes(load.value_bytes)
    ]


def _send(broker: RunningBroker, load: Load) -> Figures:
    with broker.topic(f"produce-{next(_numbers)}") as topic:
        cpu = broker.cpu_seconds()
        rate = kafka_tools.send(broker.bootstrap_servers, topic, load).records_per_second
        return {RATE.name: rate, CPU.name: (broker.cpu_seconds() - cpu) / load.gigabytes}
