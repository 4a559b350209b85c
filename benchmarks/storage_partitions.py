"""Many partitions: opening and closing all of them, and the memory they idle in, with few files open at once.

Each run is a process of its own (`python -m benchmarks.storage_partitions WHAT DIRECTORY COUNT`), which lowers its
limit of open files and prints its figures as JSON. A data directory serves all runs: each leaves it clean behind.
"""

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

import psutil
from crc32c import crc32c

from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target, say
from benchmarks.peers import PYLOG
from benchmarks.storage_logs import BATCH_1_KB, KB, batch_of
from pylog.storage.checkpoints import RECOVERY_POINTS, OffsetCheckpoint
from pylog.storage.log import LogConfig
from pylog.storage.manager import LogManager

PEER = "plain system calls"
OPEN = Measure("open s", higher_is_better=False, decimals=2)
OPEN_CPU = Measure("open CPU s", higher_is_better=False, decimals=2)
CLOSE = Measure("close s", higher_is_better=False, decimals=2)
CLOSE_CPU = Measure("close CPU s", higher_is_better=False, decimals=2)
MEMORY = Measure("KB per idle partition", higher_is_better=False, decimals=1)
MEASURES = (OPEN, OPEN_CPU, CLOSE, CLOSE_CPU)
TARGETS = {OPEN.name: Target(value_max=10), CLOSE.name: Target(value_max=10)}
COUNT = 10_000
BATCHES_BEFORE = 10  # in each partition, of 1 KB

OPEN_FILES_OF_PROCESS = 1_024  # RLIMIT_NOFILE, as many systems have it
OPEN_FILES_MAX = 256
TOPIC, TOPIC_ID = "many", UUID(int=1)
DISK_THREADS = 8  # of the peer


@contextmanager
def cases(folder: Path, options: Options) -> Iterator[list[Case]]:
    directory, count = folder / "data", options.scaled(COUNT)
    say(f"  making {count:,} partitions")
    make_partitions(directory, count)
    clean, dirty = (
        [
            Contender(PYLOG, partial(_run, ours, directory, count)),
            Contender(PEER, partial(_run, theirs, directory, count)),
        ]
        for ours, theirs in (((CLEAN,), (PLAIN_CLEAN,)), ((CRASH, DIRTY), (PLAIN_DIRTY,)))
    )
    yield [
        Case(
            f"{count:,} partitions, nothing changed",
            clean,
            [*MEASURES, MEMORY],
            {**TARGETS, MEMORY.name: Target(value_max=10)},
        ),
        Case(f"{count:,} partitions, a batch appended to each", dirty, MEASURES, TARGETS),
    ]
    with ThreadPoolExecutor(DISK_THREADS) as threads:  # one after the other, some disks take minutes
        list(threads.map(shutil.rmtree, directory.glob(f"{TOPIC}-*")))


def make_partitions(directory: Path, count: int) -> None:
    """One is made by the manager, and the others are copies of it: to sync each of them would take minutes."""
    manager = LogManager([directory], LogConfig())
    log = manager.open(TOPIC, 0, TOPIC_ID, new=True)
    for _ in range(BATCHES_BEFORE):
        log.append(batch_of(BATCH_1_KB), 0)
    end_offset = log.log_end_offset
    manager.close()
    for number in range(1, count):
        shutil.copytree(directory / f"{TOPIC}-0", directory / f"{TOPIC}-{number}", copy_function=shutil.copyfile)
    OffsetCheckpoint(directory / RECOVERY_POINTS).store({(TOPIC, number): end_offset for number in range(count)})
    os.sync()


def _run(steps: tuple[str, ...], directory: Path, count: int) -> Figures:
    """The figures of the last step."""
    for step in steps:
        command = [sys.executable, "-m", "benchmarks.storage_partitions", step, str(directory), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{step}: {done.stderr[-1000:]}")
        os.sync()  # what this one left to be written is not for the next one to wait for
    figures: Figures = json.loads(done.stdout)
    return figures


# -- in the process of its own


def _open_all(directory: Path, count: int) -> LogManager:
    manager = LogManager([directory], LogConfig(), open_files_max=OPEN_FILES_MAX)
    for number in range(count):
        manager.open(TOPIC, number, TOPIC_ID)
    return manager


def _append_to_all(manager: LogManager) -> None:
    batch = batch_of(BATCH_1_KB)
    for log in dict(manager.items()).values():
        log.append(batch, 0)


def _clean(directory: Path, count: int) -> Figures:
    figures: dict[str, float] = {}
    before = _resident_bytes()
    with _timed(figures, OPEN, OPEN_CPU):
        manager = _open_all(directory, count)
    figures[MEMORY.name] = (_resident_bytes() - before) / count / KB
    with _timed(figures, CLOSE, CLOSE_CPU):
        manager.close()
    return figures


def _crash(directory: Path, count: int) -> Figures:
    _append_to_all(_open_all(directory, count))
    os._exit(0)


def _dirty(directory: Path, count: int) -> Figures:
    figures: dict[str, float] = {}
    with _timed(figures, OPEN, OPEN_CPU):
        manager = _open_all(directory, count)
    _append_to_all(manager)
    with _timed(figures, CLOSE, CLOSE_CPU):
        manager.close()
    return figures


def _plain_clean(directory: Path, count: int) -> Figures:
    """What must be looked at: the names and sizes in each directory, and which topic it is of."""
    figures: dict[str, float] = {}
    with _timed(figures, OPEN, OPEN_CPU):
        for number in range(count):
            _look_at(directory / f"{TOPIC}-{number}")
    return figures


def _plain_dirty(directory: Path, count: int) -> Figures:
    """The same, and the bytes of the log. Then an fsync of each, several at a time. What was appended for it goes
    again, so that pylog finds its logs as it left them."""
    figures: dict[str, float] = {}
    logs = [directory / f"{TOPIC}-{number}" / f"{0:020d}.log" for number in range(count)]
    with _timed(figures, OPEN, OPEN_CPU):
        for path in logs:
            _look_at(path.parent)
            crc32c(path.read_bytes())
    sizes = [path.stat().st_size for path in logs]
    for path in logs:
        with path.open("ab") as file:
            file.write(bytes(BATCH_1_KB))
    with _timed(figures, CLOSE, CLOSE_CPU), ThreadPoolExecutor(DISK_THREADS) as threads:
        list(threads.map(_sync, logs))
    for path, size_bytes in zip(logs, sizes, strict=True):
        os.truncate(path, size_bytes)
    return figures


def _look_at(directory: Path) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            entry.stat()
    (directory / "partition.metadata").read_bytes()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _resident_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


@contextmanager
def _timed(figures: dict[str, float], wall: Measure, cpu: Measure) -> Iterator[None]:
    began, cpu_began = time.perf_counter(), time.process_time()
    yield
    figures[wall.name], figures[cpu.name] = time.perf_counter() - began, time.process_time() - cpu_began


CLEAN, CRASH, DIRTY, PLAIN_CLEAN, PLAIN_DIRTY = "clean", "crash", "dirty", "plain-clean", "plain-dirty"
STEPS: dict[str, Callable[[Path, int], Figures]] = {
    CLEAN: _clean,
    CRASH: _crash,
    DIRTY: _dirty,
    PLAIN_CLEAN: _plain_clean,
    PLAIN_DIRTY: _plain_dirty,
}


def main(arguments: list[str]) -> None:
    step, directory, count = arguments
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES_OF_PROCESS, hard))
    print(json.dumps(STEPS[step](Path(directory), int(count))))


if __name__ == "__main__":
    main(sys.argv[1:])
