"""The log on disk without a broker: appends, look-ups, recovery, compaction, many partitions.

One group after the other, each in a folder of its own that goes with it: together they would not fit into memory.
"""

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from benchmarks import storage_append, storage_compaction, storage_lookup, storage_partitions, storage_recovery
from benchmarks.harness import Case, Options, Outcome, Result, measure

TITLE = "Storage: a log beside plain system calls, compaction beside Apache Kafka's cleaner, 10,000 partitions"
ROUNDS = 3


def run(options: Options) -> Outcome:
    skipped: list[str] = []
    groups: tuple[Callable[[Path], AbstractContextManager[list[Case]]], ...] = (
        lambda folder: nullcontext(storage_append.cases(folder, options)),
        lambda folder: nullcontext(storage_lookup.cases(folder, options, skipped)),
        lambda folder: nullcontext(storage_recovery.cases(folder, options)),
        lambda folder: storage_compaction.cases(folder, options, skipped),
        lambda folder: storage_partitions.cases(folder, options),
    )
    results: list[Result] = []
    for group in groups:
        with tempfile.TemporaryDirectory(prefix="pylog-storage-") as folder, group(Path(folder)) as cases:
            results += measure(cases, options.rounds)
    return Outcome(results, skipped)
