"""Appending a batch a call, beside what cannot be saved: its CRC-32C, and writing its bytes to a file."""

import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from crc32c import crc32c

from benchmarks.harness import Case, Figures, Measure, Options, Target
from benchmarks.peers import PYLOG
from benchmarks.storage_logs import BATCH_1_MB, BATCH_16_KB, GB, MB, batch_of
from benchmarks.storage_turns import in_turns
from pylog.storage.batch import CRC_START
from pylog.storage.log import LogConfig, PartitionLog

PEER = "os.write + CRC-32C"
MEASURES = (
    Measure("append MB/s"),
    Measure("append CPU s/GB", higher_is_better=False, decimals=3),
)
TURNS = 20
# (bytes of a batch, appends in a turn, target): few enough bytes that they are gone before the kernel writes them out.
SIZES = {
    "16 KB batches": (BATCH_16_KB, 2_000, Target(ratio_min=0.6)),
    "1 MB batches": (BATCH_1_MB, 64, Target(ratio_min=0.85)),
}


def cases(folder: Path, options: Options) -> list[Case]:
    made = []
    for name, (batch_bytes, count, target) in SIZES.items():
        batch = memoryview(batch_of(batch_bytes))  # of the frame that it came in, in the broker
        runs = {
            PYLOG: partial(_append, folder, batch, options.scaled(count)),
            PEER: partial(_write, folder, batch, options.scaled(count)),
        }
        made.append(Case(f"append, {name}", in_turns(runs, TURNS), MEASURES, {MEASURES[0].name: target}))
    return made


def _append(folder: Path, batch: memoryview, count: int) -> Figures:
    directory = Path(tempfile.mkdtemp(dir=folder))
    try:
        log = PartitionLog(directory, LogConfig())
        log.append(batch, 0)  # opens the file
        began, cpu_began = time.perf_counter(), time.process_time()
        for _ in range(count):
            log.append(batch, 0)
        figures = _figures(began, cpu_began, count * len(batch))
        log.abandon()
        return figures
    finally:
        shutil.rmtree(directory)


def _write(folder: Path, batch: memoryview, count: int) -> Figures:
    descriptor, path = tempfile.mkstemp(dir=folder)
    try:
        os.write(descriptor, batch)
        under_crc = batch[CRC_START:]
        began, cpu_began = time.perf_counter(), time.process_time()
        for _ in range(count):
            crc32c(under_crc)
            os.write(descriptor, batch)
        return _figures(began, cpu_began, count * len(batch))
    finally:
        os.close(descriptor)
        os.unlink(path)


def _figures(began: float, cpu_began: float, size_bytes: int) -> Figures:
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return {MEASURES[0].name: size_bytes / MB / seconds, MEASURES[1].name: cpu_seconds / (size_bytes / GB)}
