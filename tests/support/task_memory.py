"""`python -m tests.support.task_memory servers topic end...`: reads one partition up to each end in turn, as one task,
and prints the most memory that this took beyond what the process had before, in bytes, a line each."""

import sys
from pathlib import Path

from pylog.connector.spark.option_rows import Taker
from pylog.connector.spark.options import source_options
from pylog.connector.spark.plan import OffsetRange
from pylog.connector.spark.read import RangePartition, read_partition
from pylog.connector.spark.schema import source_schema


def status_bytes(field: str) -> int:
    """Of this process: VmRSS is what it has, VmHWM the most that it had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(field)


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _read(servers: str, topic: str, end: int) -> int:
    """How many rows."""
    options = source_options({"kafka.bootstrap.servers": servers, "subscribe": topic}, Taker.BATCH)
    partition = RangePartition(OffsetRange(topic, 0, 0, end))
    return sum(batch.num_rows for batch in read_partition(options, source_schema(False), partition))


def main(servers: str, topic: str, *ends: str) -> None:
    _read(servers, topic, 1)  # loads what a worker has loaded
    before = status_bytes("VmRSS")
    for end in map(int, ends):
        forget_peak()
        assert _read(servers, topic, end) == end
        print(status_bytes("VmHWM") - before, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
