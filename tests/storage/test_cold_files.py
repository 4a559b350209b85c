"""Who must not wait for a disk is told so, and where to wait; what is in memory is read at once."""

import os
from pathlib import Path

import pytest

from pylog.storage.disk import DISK
from pylog.storage.ports import NOT_WAITING, WouldWait
from tests.support.cold import ColdFiles

MB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(4 * MB))
    return path


@pytest.fixture
def cold(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ColdFiles(monkeypatch).forget(path)
    return path


def test_a_read_that_would_wait_says_so_and_need_not_wait_afterwards(cold: Path) -> None:
    file = DISK.open(cold)
    with NOT_WAITING, pytest.raises(WouldWait) as caught:
        file.read_at(MB, 1000)
    caught.value.wait()
    with NOT_WAITING:
        assert file.read_at(MB, 1000) == cold.read_bytes()[MB : MB + 1000]


def test_so_does_a_read_by_name(cold: Path) -> None:
    with NOT_WAITING, pytest.raises(WouldWait) as caught:
        DISK.read_at(cold, MB, 1000)
    caught.value.wait()
    with NOT_WAITING:
        assert len(DISK.read_at(cold, MB, 1000)) == 1000


def test_a_read_of_which_a_part_is_in_memory_waits_for_the_rest(cold: Path) -> None:
    DISK.read_at(cold, 4096, 1)
    with NOT_WAITING, pytest.raises(WouldWait):
        DISK.open(cold).read_at(4096, 2 * MB)


def test_who_may_wait_does(cold: Path) -> None:
    assert len(DISK.open(cold).read_at(0, MB)) == MB


@pytest.mark.parametrize(
    ("position", "length", "count"),
    [
        pytest.param(4 * MB - 10, 100, 10, id="over the end"),
        pytest.param(4 * MB, 100, 0, id="at the end"),
        pytest.param(5 * MB, 100, 0, id="behind it"),
    ],
)
def test_fewer_bytes_mean_the_end_of_the_file(cold: Path, position: int, length: int, count: int) -> None:
    file = DISK.open(cold)
    file.read_ahead(0, 4 * MB)
    with NOT_WAITING:
        assert len(file.read_at(position, length)) == count


def test_what_was_read_ahead_is_in_memory_and_the_rest_is_not(cold: Path) -> None:
    file = DISK.open(cold)
    file.read_ahead(0, MB)
    assert file.is_in_memory(0, MB)
    assert not file.is_in_memory(0, 2 * MB)
    assert not file.is_in_memory(MB, 1)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system has no reads that may not wait")
def test_the_kernel_says_so_too(path: Path) -> None:
    """Sooner or later: it may have read the page while it was asked, and it keeps pages that are being written."""
    for _ in range(200):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            with NOT_WAITING:
                DISK.read_at(path, MB, 1000)
        except WouldWait as would_wait:
            would_wait.wait()
            return
    pytest.skip("the file system of the temporary directory cannot tell what is in memory, or has all there")


def test_patience_is_a_threads_own_and_comes_back_after_an_error() -> None:
    with pytest.raises(KeyError), NOT_WAITING:
        raise KeyError
    assert NOT_WAITING.waits
