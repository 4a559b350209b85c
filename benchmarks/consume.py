"""Reading by assignment: pylog beside Apache Kafka, and what it costs each broker.

Two readers. confluent-kafka hands out Python objects, so the reader sets the pace: it shows that a broker keeps
up. Our own client, without decoding, takes bytes as fast as they come: it shows what a broker can send.
"""

import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from benchmarks import producer_performance
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Outcome, measure, say, size_name
from benchmarks.peers import PARTITIONS, RunningBroker, brokers, librdkafka
from benchmarks.producer_performance import Load
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.fetcher import fetch_range

TITLE = "Consume by assignment, 4 partitions, data in the page cache"
ROUNDS = 5
MEASURES = (
    Measure("records/s"),
    Measure("MB/s"),
    Measure("broker CPU s", higher_is_better=False, decimals=2),
)
BATCHED = ("batch.size=65536", "linger.ms=5")
SILENCE_SECONDS_MAX = 30.0

COUNTS = {  # by the bytes of a value
    100: {"raw drain": 8_000_000, "confluent-kafka": 1_000_000},
    1000: {"raw drain": 1_000_000, "confluent-kafka": 500_000},
}


def run(options: Options) -> Outcome:
    with brokers() as found:
        return Outcome(measure(_cases(found.running, options), options.rounds), found.skipped)


def _cases(running: list[RunningBroker], options: Options) -> list[Case]:
    cases = []
    for value_bytes, counts in COUNTS.items():
        if not options.wants_bytes(value_bytes):
            continue
        for reader, count in counts.items():
            load = Load(options.scaled(count), value_bytes, BATCHED)
            topic = f"{reader.replace(' ', '-')}-{value_bytes}"
            for broker in running:
                say(f"  loading {load.count:,} records of {value_bytes} B into {broker.name}")
                broker.create_topic(topic)
                producer_performance.send(broker.bootstrap_servers, topic, load)
            contenders = [
                Contender(broker.name, partial(_timed, READERS[reader], broker, topic, load)) for broker in running
            ]
            cases.append(Case(f"{size_name(value_bytes)}, {reader}", contenders, MEASURES))
    return cases


def _timed(read: Callable[[RunningBroker, str, int], None], broker: RunningBroker, topic: str, load: Load) -> Figures:
    cpu, began = broker.cpu_seconds(), time.perf_counter()
    read(broker, topic, load.count)
    seconds = time.perf_counter() - began
    return {
        "records/s": load.count / seconds,
        "MB/s": load.count * load.value_bytes / seconds / 1e6,
        "broker CPU s": broker.cpu_seconds() - cpu,
    }


def _consume(broker: RunningBroker, topic: str, count: int) -> None:
    consumer = Consumer({**librdkafka(broker.bootstrap_servers), "group.id": "benchmark", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        seen = 0
        while seen < count:
            messages = consumer.consume(min(10_000, count - seen), timeout=SILENCE_SECONDS_MAX)
            if not messages:
                raise RuntimeError(f"{seen} of {count} records came, then nothing for {SILENCE_SECONDS_MAX} s")
            seen += len(messages)
    finally:
        consumer.close()


def _drain(broker: RunningBroker, topic: str, count: int) -> None:
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


READERS = {"raw drain": _drain, "confluent-kafka": _consume}
