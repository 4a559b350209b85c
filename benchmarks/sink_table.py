"""The Python producer's `send_table` beside confluent-kafka's loop over `produce`: the same rows, the same broker.

The loop finds the rows as Python objects, made before the clock starts. The seconds of CPU are this process's."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count as counter
from itertools import repeat

import confluent_kafka
import pyarrow as pa

import pylog
from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target, size_name
from benchmarks.peers import RunningBroker, librdkafka

ROWS = Measure("rows/s sent")
MEGABYTES = Measure("MB/s of values sent")
CPU = Measure("CPU s a million rows sent", higher_is_better=False, decimals=2)
TARGETS = {ROWS.name: Target(ratio_min=4.0)}
COUNTS = {100: 3_000_000, 1000: 600_000}  # by the bytes of a value
BATCHED = {"batch.size": 65536, "linger.ms": 5}  # smaller batches than its own default, as the other peers' large ones
POLL_EVERY = 1000  # rows
FULL_QUEUE_SECONDS = 0.1
FLUSH_SECONDS_MAX = 120

_numbers = counter()


@dataclass(frozen=True)
class Rows:
    """The same ones as a table and as Python's objects."""

    table: pa.Table
    keys: list[bytes] | None
    values: list[bytes]

    @classmethod
    def made(cls, count: int, value_bytes: int) -> "Rows":
        many = random.Random(1).randbytes(count + value_bytes)
        values = [many[start : start + value_bytes] for start in range(count)]
        keys = [b"%d" % number for number in range(count)]
        table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        return cls(table, keys, values)

    def without_keys(self) -> "Rows":
        return Rows(self.table.select(["value"]), None, self.values)


def cases(value_bytes: int, broker: RunningBroker, options: Options) -> list[Case]:
    keyed = Rows.made(options.scaled(COUNTS[value_bytes]), value_bytes)
    found = []
    for kind, rows in (("", keyed.without_keys()), (", keyed", keyed)):
        ways: dict[str, Callable[[str], object]] = {
            "send_table": partial(_send_table, broker, rows),
            "confluent-kafka": partial(_produce, broker, rows, {}),
            "confluent-kafka, 64 KB batches, 5 ms linger": partial(_produce, broker, rows, BATCHED),
        }
        contenders = [Contender(name, partial(_timed, broker, rows, send)) for name, send in ways.items()]
        name = f"{size_name(value_bytes)}{kind}, from Python, to {broker.name}"
        found.append(Case(name, contenders, (ROWS, MEGABYTES, CPU), TARGETS))
    return found


def _timed(broker: RunningBroker, rows: Rows, send: Callable[[str], object]) -> Figures:
    count = len(rows.values)
    with broker.topic(f"table-{next(_numbers)}") as topic:
        cpu, began = time.process_time(), time.perf_counter()
        send(topic)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
        written = broker.records_in(topic)
    if written != count:
        raise RuntimeError(f"{written} records stand in the topic, and {count} rows were sent")
    return {
        ROWS.name: count / seconds,
        MEGABYTES.name: sum(map(len, rows.values)) / 1e6 / seconds,
        CPU.name: cpu_seconds / (count / 1e6),
    }


def _send_table(broker: RunningBroker, rows: Rows, topic: str) -> None:
    producer = pylog.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.send_table(topic, rows.table)
    producer.flush()
    producer.close()


def _produce(broker: RunningBroker, rows: Rows, settings: dict[str, int], topic: str) -> None:
    producer = confluent_kafka.Producer({**librdkafka(broker.bootstrap_servers), **settings})
    produce_all(producer, topic, rows.keys, rows.values)
    left = producer.flush(FLUSH_SECONDS_MAX)
    if left:
        raise RuntimeError(f"confluent-kafka still holds {left} of {len(rows.values)} records")


def produce_all(
    producer: confluent_kafka.Producer, topic: str, keys: Sequence[bytes] | None, values: Sequence[bytes]
) -> None:
    for number, (key, value) in enumerate(zip(repeat(None) if keys is None else keys, values, strict=False)):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:  # as many wait as it takes
                producer.poll(FULL_QUEUE_SECONDS)
        if number % POLL_EVERY == 0:
            producer.poll(0)
