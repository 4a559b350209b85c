"""What a worker keeps for good is not looked through between tasks."""

import gc
from collections.abc import Iterator

import pytest

from pylog.connector.spark import worker


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "_settled", False)
    yield
    gc.unfreeze()


def test_what_is_there_after_the_first_task_is_out_of_the_collectors_sight() -> None:
    kept = [[]]
    worker.settle()
    assert gc.get_freeze_count() > 0
    assert not any(one is kept for one in gc.get_objects())


def test_what_later_tasks_make_is_still_collected() -> None:
    worker.settle()
    frozen = gc.get_freeze_count()
    made_later = [[]]
    worker.settle()
    assert gc.get_freeze_count() <= frozen
    assert any(one is made_later for one in gc.get_objects())
