"""A crash at every operation of random workloads, of the process and of the machine: what was promised is there.

`make faults` runs a thousand more seeds (tests/faults/test_storage_crashes.py)."""

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
