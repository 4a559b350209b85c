"""A crash at every operation of random workloads, of the process and of the machine: what was promised is there.

`make faults` runs a thousand more seeds (tests/faults/test_storage_crashes.py)."""

import os
import subprocess
import sys

import pytest

from tests.support.storage_crashes import survive
from tests.support.storage_faults import FaultyWorkload

pytestmark = pytest.mark.faults

SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_crash_of_a_workload_is_survived(seed: int) -> None:
    crashes = survive(seed)
    assert crashes > 100, "the workload does too little to find anything"


@pytest.mark.parametrize("seed", SEEDS)
def test_every_crash_of_a_workload_on_a_disk_that_fails_is_survived(seed: int) -> None:
    assert survive(seed, workload_type=FaultyWorkload) > 0


def test_the_disk_fails_often_enough_to_find_something() -> None:
    workloads = [FaultyWorkload(seed) for seed in SEEDS]
    for workload in workloads:
        workload.run()
    assert sum(workload.refused for workload in workloads) > len(SEEDS)
    assert sum(bool(workload.offline) for workload in workloads) > len(SEEDS) // 4


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["9"], id="with deletions of several logs that crashes cut short"),
        pytest.param(["12", "0", "--faults"], id="on a disk that fails, without crashes"),
        pytest.param(["7", "0"], id="with compaction, without crashes"),
    ],
)
def test_a_workload_follows_from_its_seed_alone(arguments: list[str]) -> None:
    first, second = (_operations(arguments, hash_seed) for hash_seed in ("1", "2"))
    numbered = enumerate(zip(first, second, strict=False), 1)
    assert next((lines for lines in numbered if lines[1][0] != lines[1][1]), None) is None
    assert len(first) == len(second) > 150


def _operations(arguments: list[str], hash_seed: str) -> list[str]:
    """In a process of its own: its strings have other hashes, and its sets another order."""
    command = [sys.executable, "-m", "tests.support.storage_crashes", "--operations", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
