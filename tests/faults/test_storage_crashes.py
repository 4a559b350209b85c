"""Many more seeds of tests/storage/test_crashes.py, on all cores. `make faults` sets how many; each failure names its
seed, and how to see it again."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from tests.support.storage_crashes import survive
from tests.support.storage_faults import FaultyWorkload
from tests.support.storage_workload import Workload

SEEDS = int(os.environ.get("PYLOG_FAULT_SEEDS", "0"))
FIRST_SEED = 1000  # the others are tests/storage's
SEEDS_A_TEST = 20  # a few seconds each
SEED_SECONDS_MAX = 120  # on a machine that has much else to do; a seed that hangs is still found


@pytest.fixture(scope="module")
def workers() -> Iterator[Executor]:
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        yield pool


@pytest.mark.timeout(SEED_SECONDS_MAX * SEEDS_A_TEST)
@pytest.mark.skipif(not SEEDS, reason="`make faults` runs these: PYLOG_FAULT_SEEDS says how many")
@pytest.mark.parametrize(
    ("workload_type", "first"),
    [
        (workload_type, first)
        for workload_type, count in ((Workload, SEEDS), (FaultyWorkload, SEEDS // 4))
        for first in range(FIRST_SEED, FIRST_SEED + count, SEEDS_A_TEST)
    ],
)
def test_every_crash_of_many_workloads_is_survived(
    workers: Executor, workload_type: type[Workload], first: int
) -> None:
    seeds = range(first, min(first + SEEDS_A_TEST, FIRST_SEED + SEEDS))
    assert all(crashes > 0 for crashes in workers.map(partial(survive, workload_type=workload_type), seeds))
