"""A crash at every operation of random workloads, of the process and of the machine: what was promised is there.

`make faults` runs a thousand more seeds (tests/faults/test_storage_crashes.py)."""

import pytest

from tests.support.storage_crashes import survive

pytestmark = pytest.mark.faults

SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_crash_of_a_workload_is_survived(seed: int) -> None:
    crashes = survive(seed)
    assert crashes > 100, "the workload does too little to find anything"
