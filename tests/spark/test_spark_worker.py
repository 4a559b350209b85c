"""What a worker keeps for good is not looked through between tasks, and what it frees is at hand for the next batch."""

import gc
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from pylog.connector.spark import worker

PAGES = 20 * (4 << 20) // os.sysconf("SC_PAGE_SIZE")  # of the blocks below
BLOCKS = """
import resource, sys
from pylog.connector.spark.worker import keep_freed_memory
keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for number in range(20):
    bytes([number]) * (4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "_settled", Counter(read=9))
    yield
    gc.unfreeze()


@pytest.mark.parametrize("before", [0, 1])
def test_what_is_there_after_the_first_two_tasks_is_out_of_the_collectors_sight(before: int) -> None:
    for _ in range(before):
        worker.settle("write")
    kept = [[]]
    worker.settle("write")
    assert gc.get_freeze_count() > 0
    assert not any(one is kept for one in gc.get_objects())


def test_what_later_tasks_make_is_still_collected() -> None:
    worker.settle("write")
    worker.settle("write")
    frozen = gc.get_freeze_count()
    made_later = [[]]
    worker.settle("write")
    assert gc.get_freeze_count() <= frozen
    assert any(one is made_later for one in gc.get_objects())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
@pytest.mark.parametrize(
    ("of_the_user", "comes_anew"),
    [
        pytest.param({}, False, id="freed memory stays"),
        pytest.param({"MALLOC_TRIM_THRESHOLD_": "131072"}, True, id="unless glibc was told otherwise"),
    ],
)
def test_memory_of_a_batch_is_not_asked_of_the_system_for_each(of_the_user: dict[str, str], comes_anew: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    environment |= of_the_user
    faults = int(subprocess.check_output([sys.executable, "-c", BLOCKS], env=environment, text=True))
    assert (faults > PAGES / 2) == comes_anew
