"""Reading, from the page cache, and what it costs each broker.

Two readers. Kafka's own ConsumerPerformance decodes what it reads, so the reader sets the pace: it shows that a broker
keeps up. Our own client, without decoding, takes bytes as fast as they come: it shows what a broker can send.
"""

import time
from collections.abc import Callable
from functools import partial

from benchmarks import kafka_tools
from benchmarks.broker_produce import BATCHED, CPU_TARGET
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target, say, size_name
from benchmarks.kafka_tools import Load
from benchmarks.peers import PARTITIONS, RunningBroker
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.fetcher import fetch_range

RATE = Measure("records/s out")
CPU = Measure("broker CPU s/GB out", higher_is_better=False, decimals=2)
TARGETS = {RATE.name: Target(ratio_min=1.0), CPU.name: CPU_TARGET}
COUNTS = {100: 8_000_000, 1000: 1_000_000}  # by the bytes of a value


def cases(running: list[RunningBroker], options: Options) -> list[Case]:
    made = []
    for value_bytes, count in COUNTS.items():
        if not options.wants_bytes(value_bytes):
            continue
        load = Load(options.scaled(count), value_bytes, BATCHED)
        topic = f"consume-{value_bytes}"
        for broker in running:
            say(f"  loading {load.count:,} records of {value_bytes} B into {broker.name}")
            broker.create_topic(topic)
            kafka_tools.send(broker.bootstrap_servers, topic, load)
        for reader, (read, targets) in READERS.items():
            contenders = [Contender(broker.name, partial(_timed, read, broker, topic, load)) for broker in running]
            made.append(Case(f"{size_name(value_bytes)}, {reader}", contenders, (RATE, CPU), targets))
    return made


def _timed(read: "Read", broker: RunningBroker, topic: str, load: Load) -> Figures:
    cpu = broker.cpu_seconds()
    rate = read(broker, topic, load.count)
    return {RATE.name: rate, CPU.name: (broker.cpu_seconds() - cpu) / load.gigabytes}


def _consume(broker: RunningBroker, topic: str, count: int) -> float:
    return kafka_tools.receive(broker.bootstrap_servers, topic, count)


def _drain(broker: RunningBroker, topic: str, count: int) -> float:
    began = time.perf_counter()
    cluster = Cluster(ClientConfig.parse({"bootstrap.servers": broker.bootstrap_servers}))
    ends = cluster.latest([(topic, partition) for partition in range(PARTITIONS)])
    if sum(ends.values()) != count:
        raise RuntimeError(f"{topic} holds {sum(ends.values())} records, not {count}")
    for (_, partition), end in ends.items():
        reached = 0
        for fetched in fetch_range(cluster, topic, partition, 0, end):
            reached = fetched.next_offset
        if reached != end:
            raise RuntimeError(f"{topic}-{partition} was read to {reached}, not to {end}")
    return count / (time.perf_counter() - began)


Read = Callable[[RunningBroker, str, int], float]
READERS: dict[str, tuple[Read, dict[str, Target]]] = {
    "ConsumerPerformance": (_consume, TARGETS),
    "raw drain": (_drain, {}),
}
