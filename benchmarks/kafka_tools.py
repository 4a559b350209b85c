"""Kafka's own performance tools: neutral loads for either broker, each run a process of its own.

They tell percentiles in whole milliseconds, cut off: what is returned is the middle of that millisecond."""

import random
import re
import string
import tempfile
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tests.support.java_tools import CONSUMER_PERFORMANCE, END_TO_END_LATENCY, PRODUCER_PERFORMANCE, run_kafka_tool

SECONDS_MAX = 600
UNLIMITED = -1
WARM_UP_SHARE = 0.2  # of the records: until then the tool's own code is being compiled
_SENT = re.compile(r"^\d+ .*records sent, ([\d.]+) records/sec.* (\d+) ms 50th, .* (\d+) ms 99th,", re.MULTILINE)
_LATENCIES = re.compile(r"Avg latency: ([\d.]+) ms\s+Percentiles: 50th = (\d+), 99th = (\d+)")
_RECORDS_PER_SECOND_COLUMN = 5
_FETCHED_COLUMN = 4
_MIDDLE_MS = 0.5
PAYLOADS_BYTES = 10_000_000  # of which records are picked: no codec finds one twice in a batch, but for a few


@dataclass(frozen=True)
class Load:
    """`count` records of random letters; `settings` are the producer's, its own defaults otherwise."""

    count: int
    value_bytes: int
    settings: tuple[str, ...] = ()
    records_per_second: int = UNLIMITED

    @property
    def gigabytes(self) -> float:
        return self.count * self.value_bytes / 1e9


class Sent(NamedTuple):
    records_per_second: float
    p50_ms: float
    p99_ms: float


class Latency(NamedTuple):
    average_ms: float
    p50_ms: float
    p99_ms: float


def send(bootstrap_servers: str, topic: str, load: Load) -> Sent:
    """What ProducerPerformance tells of the records behind the warm-up, up to the last acknowledgement."""
    properties = ["--command-property", *load.settings] if load.settings else []
    with tempfile.NamedTemporaryFile(prefix="pylog-bench-") as payloads:
        payloads.write(_payloads(load.value_bytes))
        payloads.flush()
        output = run_kafka_tool(
            PRODUCER_PERFORMANCE,
            *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--throughput", str(load.records_per_second)),
            *("--num-records", str(load.count), "--payload-file", payloads.name),
            *("--warmup-records", str(int(load.count * WARM_UP_SHARE))),
            *properties,
            seconds_max=SECONDS_MAX,
        )
    found = _SENT.findall(output)
    if not found:
        raise RuntimeError(f"ProducerPerformance printed no summary: {output[-500:]}")
    rate, p50_ms, p99_ms = found[-1]
    return Sent(float(rate), int(p50_ms) + _MIDDLE_MS, int(p99_ms) + _MIDDLE_MS)


@cache
def _payloads(value_bytes: int) -> bytes:
    """A line each. The tool picks one for each record; left to itself it makes up every byte while the clock runs, and
    at 1 KB does little else."""
    letters = random.Random(value_bytes).choices(string.ascii_uppercase.encode(), k=PAYLOADS_BYTES)
    text = bytes(letters)
    return b"\n".join(text[at : at + value_bytes] for at in range(0, PAYLOADS_BYTES - value_bytes + 1, value_bytes))


def receive(bootstrap_servers: str, topic: str, count: int) -> float:
    """Records a second that ConsumerPerformance reads from the beginning, as a group of its own that joins first."""
    output = run_kafka_tool(
        CONSUMER_PERFORMANCE,
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--num-records", str(count), "--hide-header"),
        seconds_max=SECONDS_MAX,
    )
    cells = [cell.strip() for cell in output.strip().splitlines()[-1].split(",")]
    if len(cells) <= _RECORDS_PER_SECOND_COLUMN or int(cells[_FETCHED_COLUMN]) < count:
        raise RuntimeError(f"ConsumerPerformance read less than {count} records: {output[-500:]}")
    return float(cells[_RECORDS_PER_SECOND_COLUMN])


def end_to_end(bootstrap_servers: str, topic: str, count: int, value_bytes: int) -> Latency:
    """Of EndToEndLatency, with acks=all: one record after the other is sent, and waited for by a consumer."""
    output = run_kafka_tool(
        END_TO_END_LATENCY,
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--num-records", str(count)),
        *("--producer-acks", "all", "--record-size", str(value_bytes)),
        seconds_max=SECONDS_MAX,
    )
    found = _LATENCIES.search(output)
    if found is None:
        raise RuntimeError(f"EndToEndLatency printed no percentiles: {output[-500:]}")
    return Latency(float(found[1]), int(found[2]) + _MIDDLE_MS, int(found[3]) + _MIDDLE_MS)
