"""The process as the system sees it."""

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from pylog.broker_lite.metrics.families import (
    PROCESS_CPU,
    PROCESS_DESCRIPTORS,
    PROCESS_DESCRIPTORS_MAX,
    PROCESS_MEMORY,
    PROCESS_START,
    Family,
)

_SELF = Path("/proc/self")
_STARTED_S = time.time()  # where the system does not tell: when this was loaded, which is soon after


def look() -> Iterator[tuple[Family, int | float]]:
    """What a system does not tell is left out."""
    yield PROCESS_START, round(_started_s(), 3)
    times = os.times()
    yield PROCESS_CPU, round(times.user + times.system, 3)
    try:
        pages = int((_SELF / "statm").read_text().split()[1])
        yield PROCESS_MEMORY, pages * resource.getpagesize()
        yield PROCESS_DESCRIPTORS, len(os.listdir(_SELF / "fd"))
    except OSError:
        pass
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY:
        yield PROCESS_DESCRIPTORS_MAX, soft


def _started_s() -> float:
    try:
        stat = (_SELF / "stat").read_text()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration):
        return _STARTED_S
    ticks = int(stat.rpartition(")")[2].split()[19])  # the name, in parentheses, may hold anything
    return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
