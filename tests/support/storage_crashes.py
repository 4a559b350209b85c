"""A crash at every operation of a workload: what each kind would leave is opened, and held against the twins.

    .venv/bin/python -m tests.support.storage_crashes SEED [OPERATION] [--faults]    of all operations or of one

All of it follows from the seed, in any process: `--operations` prints what every file system was asked to do."""

import argparse
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from zlib import crc32

from tests.support.clock import SettableClock
from tests.support.simulated_files import SimulatedFiles
from tests.support.storage_checks import check_it_goes_on, check_log, outcome_of
from tests.support.storage_faults import FaultyWorkload
from tests.support.storage_workload import Workload

MACHINE_CRASHES = 2  # besides the one that keeps only what was synced
GOES_ON_CHANCE = 0.3
STORY_LINES = 25


class CrashLost(AssertionError):
    """A log did not survive a crash as it should. The message says how to see it again."""


def survive(
    seed: int,
    only: int | None = None,
    workload_type: type[Workload] = Workload,
    tell: Callable[[str], None] | None = None,
) -> int:
    """How many crashes were looked at. `tell` hears of every operation, of the workload and after its crashes."""
    crashes = 0

    def before_operation(workload: Workload) -> None:
        nonlocal crashes
        if tell is not None:
            tell(f"{workload.operations}: {workload.files.latest}")
        if only is None or workload.operations == only:
            crashes += _crash(workload, tell)

    with _quiet():
        workload = workload_type(seed, before_operation)
        try:
            workload.run()
            if only is None:
                crashes += _crash(workload, tell)
            if tell is not None:
                tell(_digest(workload.files))
        except CrashLost:
            raise
        except Exception as error:
            raise CrashLost(_message(workload, "no crash, but an error")) from error
    return crashes


def _crash(workload: Workload, tell: Callable[[str], None] | None) -> int:
    """Every kind, here and now."""
    seeds = Random(workload.seed << 32 | workload.operations)
    crashes = 0
    for kind, files in _crashed(workload.files, seeds):
        _check(workload, files, kind, seeds.getrandbits(32))
        crashes += 1
        if tell is not None:
            for line in (*files.history, _digest(files)):
                tell(f"    {kind} {crashes}: {line}")
    return crashes


def _digest(files: SimulatedFiles) -> str:
    return f"leaves {crc32(repr(files.tree()).encode()):08x}"


def _crashed(files: SimulatedFiles, seeds: Random) -> Iterator[tuple[str, SimulatedFiles]]:
    yield "process", files.after_process_crash()
    yield "machine", files.after_machine_crash(None)
    for _ in range(MACHINE_CRASHES):
        yield "machine", files.after_machine_crash(seeds.getrandbits(32))


def _check(workload: Workload, files: SimulatedFiles, kind: str, seed: int) -> None:
    chance = Random(seed)
    files.capacity_bytes = None  # a log that cannot keep what it cuts does not open: test_recovery.py
    try:
        _check_all(workload, files, kind == "machine", chance)
    except Exception as error:
        raise CrashLost(_message(workload, f"crash of the {kind}")) from error


def _check_all(workload: Workload, files: SimulatedFiles, machine: bool, chance: Random) -> None:
    clock = SettableClock(workload.clock.now_ms())
    manager = workload.opened(files, clock)
    logs = []
    for key, twin in workload.twins.items():
        log = manager.open(*key, twin.topic_id, twin.config)
        logs.append(log)
        check_log(log, outcome_of(log, twin, files, machine=machine), files, chance)
    names = {name for directory in workload.directories for name in files.directories_in(directory)}
    assert names == {f"{topic}-{partition}" for topic, partition in workload.twins}
    if chance.random() < GOES_ON_CHANCE:
        for log in logs:
            check_it_goes_on(log, clock.now_ms(), chance)
        manager.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Every recovery reports what it cut."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _message(workload: Workload, what: str) -> str:
    history = workload.files.history[-STORY_LINES:]
    faults = " --faults" if isinstance(workload, FaultyWorkload) else ""
    return "\n".join(
        (
            f"seed {workload.seed}, operation {workload.operations}, {what}. To see it again:",
            f"    .venv/bin/python -m tests.support.storage_crashes {workload.seed} {workload.operations}{faults}",
            "steps:",
            *(f"    {line}" for line in workload.story[-STORY_LINES:]),
            "operations of this life:",
            *(f"    {line}" for line in history),
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("operation", type=int, nargs="?")
    parser.add_argument("--faults", action="store_true", help="on a disk that gets full, or fails")
    parser.add_argument("--operations", action="store_true", help="print every operation of every file system")
    arguments = parser.parse_args()
    workload_type = FaultyWorkload if arguments.faults else Workload
    tell = print if arguments.operations else None
    print(f"{survive(arguments.seed, arguments.operation, workload_type, tell)} crashes survived")


if __name__ == "__main__":
    main()
