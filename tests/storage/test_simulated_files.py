"""The simulated file system numbers its steps and dies at any of them; what was written by then stays."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clock import SettableClock
from tests.support.simulated_examples import ROOT, SEEDS, A, B, D, Tree, contents_of_a, with_synced, workload
from tests.support.simulated_files import Crashed, SimulatedFiles

# -- a crash of the process


def test_every_changing_step_has_a_number_and_a_line() -> None:
    files = SimulatedFiles()
    files.create_directory(D)
    files.create_empty(A)
    appender = files.open_appender(A)
    appender.append(b"012", 0)
    appender.sync()
    files.write_at(A, 3, b"3456")
    files.truncate(A, 5)
    assert files.read(A) == b"01234"
    files.rename(A, B)
    files.sync(ROOT)
    files.remove(B)
    files.remove_directory(D)
    assert files.operations == 10
    assert files.history == [
        "1 create_directory /sim/d",
        "2 create_empty /sim/a",
        "3 append /sim/a: 3 bytes at 0",
        "4 sync /sim/a",
        "5 write_at /sim/a: 4 bytes at 3",
        "6 truncate /sim/a: to 5 bytes",
        "7 rename /sim/a -> /sim/b",
        "8 sync /sim",
        "9 remove /sim/b",
        "10 remove_directory /sim/d",
    ]


def test_a_step_that_is_refused_has_no_number() -> None:
    files = SimulatedFiles()
    with pytest.raises(FileNotFoundError):
        files.sync(A)
    assert files.operations == 0


def test_a_dead_process_does_nothing_more() -> None:
    files = with_synced(a=b"0123")
    opened, appender = files.open(A), files.open_appender(A)
    files.crash_at = files.operations + 1
    dead: list[Callable[[], object]] = [
        lambda: files.rename(A, B),
        lambda: files.remove(A),
        lambda: files.read(A),
        lambda: files.is_directory(ROOT),
        lambda: files.sizes_in(ROOT),
        lambda: files.lock(B),
        lambda: opened.read_at(0, 1),
        lambda: opened.read_into(0, memoryview(bytearray(1))),
        lambda: appender.append(b"x", 4),
        lambda: appender.sync(),
    ]
    for step in dead:
        with pytest.raises(Crashed, match=r"rename /sim/a -> /sim/b"):
            step()
    assert files.after_process_crash().tree() == {"a": b"0123"}


def test_no_handler_of_errors_catches_a_crash() -> None:
    assert not issubclass(Crashed, Exception)


def test_a_crash_at_each_step_leaves_all_that_was_written_before() -> None:
    whole = SimulatedFiles()
    before: list[Tree] = []
    whole.before_operation = lambda: before.append(whole.tree())
    workload(whole)
    before.append(whole.tree())
    assert whole.operations > 20
    for number in range(1, whole.operations + 1):
        files = SimulatedFiles(seed=number)
        files.crash_at = number
        with pytest.raises(Crashed):
            workload(files)
        assert files.operations == number
        left = files.after_process_crash().tree()
        old, new = before[number - 1], before[number]
        if not any(kind in files.history[-1] for kind in ("append", "write_at")):
            assert left == old
        assert old.keys() <= left.keys() <= old.keys() | new.keys()
        for path, data in left.items():
            assert (data or b"").startswith(old.get(path) or b"")
            assert left == old or (new[path] or b"").startswith(data or b"")


def test_a_write_is_torn_at_any_byte() -> None:
    seen = set()
    for seed in SEEDS:
        files = SimulatedFiles(seed=seed)
        files.create_empty(A)
        files.crash_at = 2
        with pytest.raises(Crashed):
            files.open_appender(A).append(b"0123", 0)
        seen.add(files.after_process_crash().read(A))
    assert seen == {b"", b"0", b"01", b"012", b"0123"}


def test_a_write_that_creates_its_file_may_leave_it_empty_or_not_there() -> None:
    seen = set()
    for seed in SEEDS:
        files = SimulatedFiles(seed=seed)
        files.crash_at = 1
        with pytest.raises(Crashed):
            files.write_at(A, 0, b"01")
        seen.add(files.after_process_crash().read(A))
    assert seen == {None, b"", b"0", b"01"}


def test_one_run_that_looks_before_each_step_sees_what_a_run_for_each_crash_sees() -> None:
    seed = 5
    seen: list[tuple[Tree, Tree]] = []
    watched = SimulatedFiles(seed=seed)
    watched.before_operation = lambda: seen.append(
        (watched.after_process_crash().tree(), watched.after_machine_crash(seed).tree())
    )
    workload(watched)
    assert len(seen) == watched.operations
    for number, expected in enumerate(seen, 1):
        files = SimulatedFiles(seed=seed)
        files.crash_at = number
        with pytest.raises(Crashed):
            workload(files)
        assert (files.after_process_crash().tree(), files.after_machine_crash(seed).tree()) == expected


def test_what_comes_after_a_crash_shares_nothing_with_what_was_before() -> None:
    files = with_synced(a=b"0123")
    files.write_at(A, 4, b"45")
    after = files.after_process_crash()
    files.write_at(A, 0, b"x")
    after.write_at(A, 6, b"6")
    assert files.tree() == {"a": b"x12345"}
    assert after.tree() == {"a": b"0123456"}
    assert after.after_machine_crash(None).tree() == files.after_machine_crash(None).tree() == {"a": b"0123"}
    after.flip_bit(A, 0)
    after.remove(A)
    assert files.tree() == {"a": b"x12345"}
    assert after.tree() == {}
    assert files.after_process_crash().after_process_crash().tree() == {"a": b"x12345"}


def test_a_process_crash_syncs_nothing() -> None:
    files = with_synced(a=b"0123")
    files.write_at(A, 4, b"45")
    files.write_at(B, 0, b"b")
    assert files.after_process_crash().after_machine_crash(None).tree() == {"a": b"0123"}


def test_a_crash_releases_the_locks_and_heals_the_faults() -> None:
    files = SimulatedFiles()
    files.capacity_bytes = 7
    files.fail("*", errno.EIO, times=None)
    files.heal()
    assert files.lock(A) is not None
    files.fail("*", errno.EIO, times=None)
    after = files.after_process_crash()
    assert after.lock(A) is not None
    assert after.capacity_bytes == 7
    assert (after.operations, after.history) == (0, [])


# -- the rest


def test_a_flipped_bit_is_flipped_on_the_disk_too() -> None:
    files = SimulatedFiles()
    files.write_at(A, 0, b"\0\0\0")
    files.sync(ROOT)
    opened = files.open(A)
    files.flip_bit(A, 8 + 3)
    assert opened.read_at(0, 3) == files.read(A) == b"\0\x08\0"
    assert contents_of_a(files) == {b"\0\x08\0"}
    with pytest.raises(IndexError):
        files.flip_bit(A, 24)


def test_a_file_was_modified_when_the_clock_said() -> None:
    clock = SettableClock(1000)
    files = SimulatedFiles(clock)
    files.write_at(A, 0, b"a")
    clock.advance(5)
    files.write_at(B, 0, b"b")
    clock.set(900)
    files.truncate(A, 0)
    after = files.after_process_crash()
    assert (after.modified_ms(A), after.modified_ms(B)) == (900, 1005)


def test_what_the_disk_cannot_do_here_is_an_error_of_the_test() -> None:
    files = with_synced(a=b"a")
    files.create_directory(D)
    with pytest.raises(ValueError, match=r"two directories"):
        files.rename(A, D / "a")
    with pytest.raises(NotImplementedError):
        files.open(A).fileno()
    with pytest.raises(AssertionError, match=r"not absolute"):
        files.size_of(Path("a"))
