"""Kafka's own ProducerPerformance: a neutral load for either broker."""

import re
from dataclasses import dataclass

from tests.support.java_tools import PRODUCER_PERFORMANCE, run_kafka_tool

SECONDS_MAX = 600
_SUMMARY = re.compile(r"^\d+ records sent, ([\d.]+) records/sec", re.MULTILINE)


@dataclass(frozen=True)
class Load:
    """`count` records of random letters; `settings` are the producer's, its own defaults otherwise."""

    count: int
    value_bytes: int
    settings: tuple[str, ...] = ()


def send(bootstrap_servers: str, topic: str, load: Load) -> float:
    """Records a second, as the tool says: from its first record to the last acknowledgement."""
    properties = ["--command-property", *load.settings] if load.settings else []
    output = run_kafka_tool(
        PRODUCER_PERFORMANCE,
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(load.count), "--record-size", str(load.value_bytes)),
        *properties,
        seconds_max=SECONDS_MAX,
    )
    found = _SUMMARY.findall(output)
    if not found:
        raise RuntimeError(f"ProducerPerformance printed no summary: {output[-500:]}")
    return float(found[-1])
