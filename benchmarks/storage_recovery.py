"""Opening a log after an unclean stop, beside reading its bytes and summing them up; the file is in the page cache."""

import os
import time
from functools import partial
from pathlib import Path

from crc32c import crc32c

from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target, say
from benchmarks.peers import PYLOG
from benchmarks.storage_logs import BATCH_1_KB, BATCH_1_MB, BATCH_16_KB, GB, make_log, shown_bytes
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.recovery import Trust

PEER = "read + CRC-32C"
MEASURES = (
    Measure("recovery s/GB", higher_is_better=False, decimals=2),
    Measure("recovery CPU s/GB", higher_is_better=False, decimals=2),
)
TARGET = Target(value_max=1.0)
# (bytes of a batch, bytes of the log): small batches are slow to make
LOGS = {
    "1 KB batches": (BATCH_1_KB, GB // 4),
    "16 KB batches": (BATCH_16_KB, GB),
    "1 MB batches": (BATCH_1_MB, GB),
}
RECOVERY_POINTS = {"none of it flushed": 0.0, "90 % flushed": 0.9}
CHUNK_BYTES = 1 << 20


def cases(folder: Path, options: Options) -> list[Case]:
    made = []
    for name, (batch_bytes, size_bytes) in LOGS.items():
        directory = folder / str(batch_bytes)
        say(f"  making a log of {shown_bytes(options.scaled(size_bytes))}, {name}")
        make_log(directory, options.scaled(size_bytes), batch_bytes)
        for point, part in RECOVERY_POINTS.items():
            contenders = [
                Contender(PYLOG, partial(_recover, directory, part)),
                Contender(PEER, partial(_read, directory)),
            ]
            targets = {} if batch_bytes == BATCH_1_KB else {MEASURES[0].name: TARGET}
            made.append(Case(f"recovery, {name}, {point}", contenders, MEASURES, targets))
    os.sync()
    return made


def _recover(directory: Path, part: float) -> Figures:
    clean = PartitionLog(directory, LogConfig())
    end_offset, size_bytes = clean.log_end_offset, clean.size_bytes
    clean.abandon()
    trust = Trust(clean=False, recovery_point=int(end_offset * part))
    began, cpu_began = time.perf_counter(), time.process_time()
    log = PartitionLog(directory, LogConfig(), trust)
    figures = _figures(began, cpu_began, size_bytes)
    if log.log_end_offset != end_offset or log.cuts:
        raise RuntimeError(f"{directory} ended at {end_offset} and now ends at {log.log_end_offset}")
    log.close()  # so that the next one finds sound indexes
    return figures


def _read(directory: Path) -> Figures:
    buffer = memoryview(bytearray(CHUNK_BYTES))
    size_bytes = 0
    began, cpu_began = time.perf_counter(), time.process_time()
    for path in directory.glob("*.log"):
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                crc32c(buffer[:count])
                size_bytes += count
    return _figures(began, cpu_began, size_bytes)


def _figures(began: float, cpu_began: float, size_bytes: int) -> Figures:
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return {MEASURES[0].name: seconds / (size_bytes / GB), MEASURES[1].name: cpu_seconds / (size_bytes / GB)}
