"""The simulated file system fails as a disk does: it fills up, it tears a write, and a failed sync loses for good."""

import errno
from collections.abc import Callable

import pytest

from tests.support.simulated_examples import ROOT, SEEDS, A, B, C, D, contents_of_a, outcomes, with_synced
from tests.support.simulated_files import SimulatedFiles


def test_a_fault_strikes_where_and_when_it_is_asked_to() -> None:
    files = with_synced(a=b"a", b=b"b")
    files.fail("sync", errno.EIO, path="*/a", after=1, times=2)
    for path, fails in ((A, False), (B, False), (A, True), (A, True), (B, False), (A, False)):
        if not fails:
            files.sync(path)
            continue
        with pytest.raises(OSError, match=r"error.*/sim/a") as failed:
            files.sync(path)
        assert failed.value.errno == errno.EIO
    assert files.history[-4:-2] == ["5 sync /sim/a: EIO", "6 sync /sim/a: EIO"]


def test_a_fault_lasts_until_it_is_healed() -> None:
    files = with_synced(a=b"a", b=b"b")
    files.fail("*", errno.EIO, path="/sim/a*", times=None)
    for _ in range(3):
        with pytest.raises(OSError, match=r"/sim/a"):
            files.read(A)
    with pytest.raises(OSError, match=r"/sim/b"):
        files.rename(B, A)  # one of its two names is enough
    assert files.sizes_in(ROOT) == {"a": 1, "b": 1}
    files.heal()
    files.rename(B, A)
    assert files.tree() == {"a": b"b"}


def test_a_fault_that_can_never_strike_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fsync"):
        SimulatedFiles().fail("fsync", errno.EIO)


@pytest.mark.parametrize(
    ("operation", "step"),
    [
        pytest.param("size_of", lambda files: files.read(A), id="size_of"),
        pytest.param("open", lambda files: files.open(A), id="open"),
        pytest.param("open_appender", lambda files: files.open_appender(A), id="open_appender"),
        pytest.param("read_at", lambda files: files.read(A), id="read_at"),
        pytest.param("read_at", lambda files: files.open(A).read_at(0, 1), id="read_at of an open file"),
        pytest.param("read_into", lambda files: files.open(A).read_into(0, memoryview(bytearray(1))), id="read_into"),
        pytest.param("modified_ms", lambda files: files.modified_ms(A), id="modified_ms"),
        pytest.param("is_directory", lambda files: files.is_directory(A), id="is_directory"),
        pytest.param("sizes_in", lambda files: files.sizes_in(ROOT), id="sizes_in"),
        pytest.param("directories_in", lambda files: files.directories_in(ROOT), id="directories_in"),
        pytest.param("lock", lambda files: files.lock(B), id="lock"),
        pytest.param("create_empty", lambda files: files.create_empty(A), id="create_empty"),
        pytest.param("truncate", lambda files: files.truncate(A, 0), id="truncate"),
        pytest.param("rename", lambda files: files.rename(A, B), id="rename"),
        pytest.param("remove", lambda files: files.remove(A), id="remove"),
        pytest.param("create_directory", lambda files: files.create_directory(D), id="create_directory"),
        pytest.param("sync", lambda files: files.sync(A), id="sync"),
        pytest.param("sync", lambda files: files.open_appender(A).sync(), id="sync of an appender"),
        pytest.param("append", lambda files: files.open_appender(A).append(b"x", 1), id="append"),
    ],
)
def test_every_step_can_fail_and_then_has_changed_nothing(
    operation: str, step: Callable[[SimulatedFiles], object]
) -> None:
    files = with_synced(a=b"a")
    files.fail(operation, errno.EIO)
    with pytest.raises(OSError, match=r"/sim") as failed:
        step(files)
    assert failed.value.errno == errno.EIO
    assert files.tree() == {"a": b"a"}
    step(files)


def test_a_write_that_fails_may_have_written_a_part() -> None:
    seen = set()
    for seed in SEEDS:
        files = SimulatedFiles(seed=seed)
        files.create_empty(A)
        files.fail("write_at", errno.ENOSPC)
        with pytest.raises(OSError, match=r"No space"):
            files.write_at(A, 0, b"012")
        seen.add(files.read(A))
    assert seen == {b"", b"0", b"01", b"012"}


@pytest.mark.parametrize("seed", range(8))
def test_an_append_that_cannot_be_cut_back_is_cut_by_the_next_one(seed: int) -> None:
    files = SimulatedFiles(seed=seed)
    files.write_at(A, 0, b"0123")
    appender = files.open_appender(A)
    files.fail("append", errno.ENOSPC)
    files.fail("truncate", errno.EIO, times=2)
    for _ in range(2):
        with pytest.raises(OSError, match=r"/sim/a") as failed:
            appender.append(b"a long append", 4)
        assert failed.value.errno == errno.EIO
    appender.append(b"4", 4)
    assert files.read(A) == b"01234"


def test_a_full_disk_takes_what_fits_and_more_when_there_is_room() -> None:
    files = with_synced(a=b"0123", b=b"4567")
    files.capacity_bytes = 10
    appender = files.open_appender(A)
    appender.append(b"89", 4)
    with pytest.raises(OSError, match=r"No space") as full:
        appender.append(b"x", 6)
    assert full.value.errno == errno.ENOSPC
    assert files.history[-1].endswith("1 bytes at 6, disk full after 0")
    files.write_at(B, 0, b"over")  # needs no room
    files.create_empty(C)
    with pytest.raises(OSError, match=r"No space"):
        files.replace(B, b"replaced", durable=True)
    assert files.read(B) == b"over"
    files.remove(B)
    appender.append(b"x", 6)
    assert files.used_bytes == 7


# -- a sync that fails


def test_what_a_failed_sync_lost_no_later_sync_keeps() -> None:
    files = with_synced(a=b"01")
    appender = files.open_appender(A)
    appender.append(b"23", 2)
    files.fail("sync", errno.EIO)
    with pytest.raises(OSError, match=r"/sim/a"):
        appender.sync()
    assert files.read(A) == b"0123"
    appender.append(b"45", 4)
    appender.sync()
    files.sync(A)
    assert files.read(A) == b"012345"
    assert contents_of_a(files) == {b"01\0\x0045"}


def test_a_failed_sync_keeps_the_truncation() -> None:
    files = with_synced(a=b"0123")
    files.truncate(A, 2)
    files.write_at(A, 2, b"x")
    files.fail("sync", errno.EIO)
    with pytest.raises(OSError, match=r"/sim/a"):
        files.sync(A)
    assert contents_of_a(files) == {b"01"}


def test_names_that_a_failed_sync_lost_no_later_sync_keeps() -> None:
    files = with_synced(a=b"a")
    files.rename(A, B)
    files.create_empty(C)
    files.fail("sync", errno.EIO, path="/sim")
    with pytest.raises(OSError, match=r"/sim"):
        files.sync(ROOT)
    files.sync(ROOT)
    assert files.tree() == {"b": b"a", "c": b""}
    assert outcomes(files) == [{"a": b"a"}]
    files.rename(B, D)  # what comes later is kept, and a file has one name
    files.sync(ROOT)
    assert outcomes(files) == [{"d": b"a"}]
