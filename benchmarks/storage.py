"""The log on disk without a broker: appends, look-ups, recovery, compaction, many partitions.

One group after the other, each in a folder of its own that goes with it: together they would not fit into memory.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import storage_append, storage_lookup, storage_partitions, storage_recovery
from benchmarks.harness import Case, Options, Outcome, measure

TITLE = "Storage: one log beside plain system calls, and 10,000 of them"
ROUNDS = 3


def run(options: Options) -> Outcome:
    skipped: list[str] = []
    groups: tuple[Callable[[Path], list[Case]], ...] = (
        lambda folder: storage_append.cases(folder, options),
        lambda folder: storage_lookup.cases(folder, options, skipped),
        lambda folder: storage_recovery.cases(folder, options),
        lambda folder: storage_partitions.cases(folder, options),
    )
    results = []
    for cases in groups:
        with tempfile.TemporaryDirectory(prefix="pylog-storage-") as folder:
            results += measure(cases(Path(folder)), options.rounds)
    return Outcome(results, skipped)
