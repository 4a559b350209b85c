"""Finding an offset or a time in a log: as fast in a large log as in a small one.

Random places all over the log, which was opened anew, so that nothing is known of its newest batches; its files are
in the page cache.
"""

import random
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from benchmarks.harness import Case, Figures, Measure, Options, Target, say
from benchmarks.peers import PYLOG
from benchmarks.storage_logs import BATCH_16_KB, FIRST_MS, GB, MB, make_log, shown_bytes
from benchmarks.storage_turns import in_turns
from pylog.storage.log import LogConfig, PartitionLog

MEASURES = (
    Measure("look-up µs", higher_is_better=False, decimals=1),
    Measure("look-up CPU µs", higher_is_better=False, decimals=1),
)
SIZES_BYTES = (10 * MB, 1 * GB, 8 * GB)
FLAT = Target(ratio_min=0.5)
TURNS = 20
COUNT = 500  # in a turn
FETCH_BYTES = 1 << 20  # max.partition.fetch.bytes
ROOM = 1.25  # of the size of a log, on the disk and in memory

_random = random.Random(0)


def cases(folder: Path, options: Options, skipped: list[str]) -> list[Case]:
    small, *larger = (options.scaled(size_bytes) for size_bytes in SIZES_BYTES)
    logs = {}
    for size_bytes in (small, *larger):
        name = f"a log of {shown_bytes(size_bytes)}"
        lacking = _lacking(folder, size_bytes)
        if lacking:
            skipped.append(f"look-ups in {name}: {lacking}")
            say(f"  skipped: {skipped[-1]}")
            continue
        say(f"  making {name}")
        make_log(folder / str(size_bytes), size_bytes, BATCH_16_KB)
        logs[size_bytes] = PartitionLog(folder / str(size_bytes), LogConfig())
    return [
        _case(kind, look_up, logs[small], small, logs[size_bytes], size_bytes)
        for kind, look_up in (("by offset", by_offset), ("by time", by_time))
        for size_bytes in larger
        if size_bytes in logs
    ]


def _case(
    kind: str,
    look_up: Callable[[PartitionLog], Figures],
    small: PartitionLog,
    small_bytes: int,
    log: PartitionLog,
    size_bytes: int,
) -> Case:
    runs = {PYLOG: partial(look_up, log), f"a log of {shown_bytes(small_bytes)}": partial(look_up, small)}
    return Case(f"look-up {kind}, {shown_bytes(size_bytes)}", in_turns(runs, TURNS), MEASURES, {MEASURES[0].name: FLAT})


def _lacking(folder: Path, size_bytes: int) -> str | None:
    """What there is too little of for such a log."""
    wanted = int(size_bytes * ROOM)
    for what, there in (("disk", shutil.disk_usage(folder).free), ("memory", psutil.virtual_memory().available)):
        if there < wanted:
            return f"{shown_bytes(wanted)} of {what} are needed, and {shown_bytes(there)} are free"
    return None


def by_offset(log: PartitionLog) -> Figures:
    return _timed([_random.randrange(log.log_end_offset) for _ in range(COUNT)], lambda at: log.read(at, FETCH_BYTES))


def by_time(log: PartitionLog) -> Figures:
    return _timed([FIRST_MS + _random.randrange(log.log_end_offset) for _ in range(COUNT)], log.offset_at_time)


def _timed(places: list[int], look_up: Callable[[int], object]) -> Figures:
    now_ns, seconds = time.perf_counter_ns, []
    cpu_began = time.process_time()
    for place in places:
        began_ns = now_ns()
        found = look_up(place)
        seconds.append((now_ns() - began_ns) / 1e3)
        if found is None:
            raise RuntimeError(f"nothing was found at {place}")
    cpu = (time.process_time() - cpu_began) * 1e6
    return {MEASURES[0].name: statistics.median(seconds), MEASURES[1].name: cpu / len(places)}
