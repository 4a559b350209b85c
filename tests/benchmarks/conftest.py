import pytest

from benchmarks import harness


@pytest.fixture(autouse=True)
def no_memory_to_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for figures alone, and takes a second a run."""
    monkeypatch.setattr(harness, "TOUCHED_BYTES", 0)
