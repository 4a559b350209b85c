"""Sparse indexes: Kafka's bytes, look-ups against a plain list, entries that wait in memory."""

import errno
import logging
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.disk import DISK
from pylog.storage.errors import DamagedFile
from pylog.storage.index import OFFSET_ENTRY, TIME_ENTRY, Index
from tests.support.simulated_files import SimulatedFiles


def test_offset_entries_are_kafkas_to_the_byte(tmp_path: Path) -> None:
    index = Index(tmp_path / "00000000000000000100.index", OFFSET_ENTRY, 0, DISK)
    index.append(101 - 100, 16)
    index.append(150 - 100, 4096)
    index.store()
    assert index.path.read_bytes().hex() == "00000001000000100000003200001000"


def test_time_entries_are_kafkas_to_the_byte(tmp_path: Path) -> None:
    index = Index(tmp_path / "00000000000000000100.timeindex", TIME_ENTRY, 0, DISK)
    index.append(1700000000000, 1)
    index.append(1700000000005, 50)
    index.store()
    assert index.path.read_bytes().hex() == "0000018bcfe56800000000010000018bcfe5680500000032"


def test_an_empty_index_knows_nothing(tmp_path: Path) -> None:
    index = Index(tmp_path / "i", OFFSET_ENTRY, 0, DISK)
    assert index.floor(1 << 40) == -1
    assert index.last is None
    assert not index.path.exists()


steps = st.lists(st.tuples(st.integers(1, 1 << 12), st.integers(1, 1 << 12)), min_size=1, max_size=700)


@given(steps, st.data())
def test_look_ups_agree_with_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("index") / "i"
    index = Index(path, OFFSET_ENTRY, 0, DISK)
    twin: list[tuple[int, int]] = []
    for step in steps:
        last = twin[-1] if twin else (0, 0)
        twin.append((last[0] + step[0], last[1] + step[1]))
        index.append(*twin[-1])
    if data.draw(st.booleans()):
        index.store()
        index = Index(path, OFFSET_ENTRY, path.stat().st_size, DISK)
    assert index.last == twin[-1]
    assert [index[number] for number in range(index.count)] == twin
    for column in (0, 1):
        values = st.integers(0, twin[-1][column] + 1) | st.sampled_from([entry[column] for entry in twin])
        for value in data.draw(st.lists(values, min_size=1, max_size=20)):
            assert index.floor(value, column) == sum(entry[column] <= value for entry in twin) - 1


@pytest.mark.parametrize(
    "curve",
    [
        pytest.param(lambda n: 2 * n, id="even"),
        pytest.param(lambda n: n**3, id="slow at first"),
        pytest.param(lambda n: 2**30 - (1000 - n) ** 3, id="fast at first"),
        pytest.param(lambda n: 2 * n + (2**30 if n == 999 else 0), id="one leap at the end"),
        pytest.param(lambda n: 2 * n + (2**30 if n else 0), id="one leap at the start"),
    ],
)
def test_look_ups_hold_on_logs_that_did_not_grow_evenly(tmp_path: Path, curve: Callable[[int], int]) -> None:
    values = [curve(n) for n in range(1000)]
    index = Index(tmp_path / "i", OFFSET_ENTRY, 0, DISK)
    for number, value in enumerate(values):
        index.append(value, number)
    index.store()
    for number, value in enumerate(values):
        assert index.floor(value) == number
        if value - 1 not in values:
            assert index.floor(value - 1) == number - 1


def test_entries_reach_the_file_in_groups_and_all_of_them_when_stored(tmp_path: Path) -> None:
    index = Index(tmp_path / "i", OFFSET_ENTRY, 0, DISK)
    for number in range(1000):
        index.append(number, number)
    stored = index.path.stat().st_size // 8
    assert 0 < stored < 1000
    assert index.floor(10) == 10  # keeps the block
    for number in range(1000, 2000):
        index.append(number, number)
    assert index.floor(stored + 100) == stored + 100  # behind the end of the kept block
    index.store()
    assert index.path.stat().st_size == 2000 * 8


def test_a_full_disk_keeps_the_entries_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    files.capacity_bytes = 1501  # a part of an entry gets through
    index = Index(files.root / "i", OFFSET_ENTRY, 0, files)
    with caplog.at_level(logging.WARNING):
        for number in range(600):
            index.append(number, number)
    assert "stay in memory" in caplog.text
    assert [index.floor(number) for number in range(600)] == list(range(600))
    with pytest.raises(OSError, match="No space left"):
        index.store()
    files.capacity_bytes = None
    index.store()
    assert files.read(index.path) == b"".join(OFFSET_ENTRY.pack(n, n) for n in range(600))


@given(
    st.lists(st.tuples(st.integers(-9, 99), st.integers(-9, 99)), min_size=1, max_size=40),
    st.integers(0, 40),
    st.integers(-20, 120),
    st.sampled_from([0, 1]),
)
def test_whatever_the_entries_are_a_floor_is_not_above_the_value(
    entries: list[tuple[int, int]], stored: int, value: int, column: int
) -> None:
    """Damage breaks the order. A look-up then is allowed to miss a better entry, and nothing else."""
    files = SimulatedFiles()
    index = Index(files.root / "i", OFFSET_ENTRY, 0, files)
    for number, entry in enumerate(entries):
        index.append(*entry)
        if number == stored:
            index.store()
    found = index.floor(value, column)
    assert found == -1 or index[found][column] <= value


def test_bytes_behind_the_last_whole_entry_are_overwritten() -> None:
    files = SimulatedFiles()
    path = files.root / "i"
    files.write_at(path, 0, OFFSET_ENTRY.pack(1, 1) + b"torn")
    index = Index(path, OFFSET_ENTRY, 12, files)
    assert (index.count, index.surplus_bytes) == (1, 4)
    index.append(2, 2)
    index.store()
    assert files.read(path) == OFFSET_ENTRY.pack(1, 1) + OFFSET_ENTRY.pack(2, 2)


def test_only_what_was_stored_since_the_last_time_is_synced() -> None:
    files = SimulatedFiles()
    index = Index(files.root / "i", OFFSET_ENTRY, 0, files)
    index.append(1, 1)
    index.sync()
    assert files.history == []  # it waits in memory
    index.store()
    for _ in range(2):
        index.sync()
    index.store()
    assert files.history == ["1 write_at /sim/i: 8 bytes at 0", "2 sync /sim/i"]


def test_a_sync_for_which_there_was_no_descriptor_is_still_to_be_done() -> None:
    files = SimulatedFiles()
    index = Index(files.root / "i", OFFSET_ENTRY, 0, files)
    index.append(1, 1)
    index.store()
    files.fail("sync", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        index.sync()
    before = files.operations
    index.sync()
    assert files.operations == before + 1


def _stored(files: SimulatedFiles, count: int, entry: struct.Struct = OFFSET_ENTRY) -> Index:
    """An index as it is found: nothing of it is in memory."""
    path = files.root / "i"
    files.write_at(path, 0, b"".join(entry.pack(2 * number, 3 * number) for number in range(count)))
    return Index(path, entry, count * entry.size, files)


@contextmanager
def _counted_reads(files: SimulatedFiles) -> Iterator[list[tuple[int, int]]]:
    reads: list[tuple[int, int]] = []
    read_at = files.read_at

    def counted(path: Path, position: int, length: int) -> bytes:
        reads.append((position, length))
        return read_at(path, position, length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "read_at", counted)
        yield reads


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY], ids=["offsets", "times"])
def test_a_look_up_reads_a_block_and_a_reader_that_goes_on_from_there_reads_nothing(entry: struct.Struct) -> None:
    files = SimulatedFiles()
    index = _stored(files, 100_000, entry)
    with _counted_reads(files) as reads:
        assert index.floor(2 * 70_000 + 1) == 70_000
        assert len(reads) == 3  # the last entry, the first one, and the block
        assert max(length for _, length in reads) <= 4096
        del reads[:]
        for number in range(70_000, 70_150):
            assert index.floor(2 * number) == number
        assert reads == []
        for number in range(70_000, 80_000):
            assert index.floor(2 * number) == number
        assert len(reads) < 10_000 * entry.size / 1024


CURVES: dict[str, Callable[[int], int]] = {
    "slow at first": lambda n: n**3 // 10**7,
    "fast at first": lambda n: 2**30 - (100_000 - n) ** 3 // 10**7,
    "one leap at the end": lambda n: n + (2**30 if n == 99_999 else 0),
    "one leap at the start": lambda n: n + (2**30 if n else 0),
    "doubling": lambda n: n + 2 ** (n * 30 // 100_000),
}


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_no_curve_makes_a_look_up_read_the_whole_index(curve: Callable[[int], int]) -> None:
    files = SimulatedFiles()
    path, values = files.root / "i", [curve(n) for n in range(100_000)]
    files.write_at(path, 0, b"".join(OFFSET_ENTRY.pack(value, n) for n, value in enumerate(values)))
    for value in [values[n] for n in range(0, 100_000, 3989)] + [values[-1] - 1, values[1] - 1]:
        index = Index(path, OFFSET_ENTRY, 800_000, files)
        with _counted_reads(files) as reads:
            assert index.floor(value) == bisect_right(values, value) - 1
        assert len(reads) <= 2 + 3 * 8  # of 196 blocks


@given(st.integers(0, 1 << 32), st.integers(500, 2500), st.sampled_from([1, 3, 1 << 12]))
def test_blocks_of_an_index_that_grows_agree_with_a_plain_list(seed: int, count: int, step_max: int) -> None:
    files, random = SimulatedFiles(), Random(seed)
    index = Index(files.root / "i", OFFSET_ENTRY, 0, files)
    values: list[int] = []
    for number in range(count):
        values.append((values[-1] if values else 0) + random.randint(1, step_max))
        index.append(values[-1], number)
        if not random.randrange(16):
            value = random.randint(0, values[-1])
            assert index.floor(value) == bisect_right(values, value) - 1


def test_a_released_index_reads_its_file_again() -> None:
    files = SimulatedFiles()
    index = _stored(files, 4)
    assert index.floor(5) == 2
    files.fail("read_at", errno.EMFILE, times=None)
    assert index.floor(3) == 1
    index.release()
    with pytest.raises(OSError, match="Too many open files"):
        index.floor(3)
    files.heal()
    assert index.floor(3) == 1


@pytest.mark.parametrize("count", [0, 4, 5000])
def test_a_pinned_index_needs_no_file(count: int) -> None:
    files = SimulatedFiles()
    index = _stored(files, count)
    index.pin()
    files.remove(index.path)
    assert [index.floor(2 * number) for number in range(count)] == list(range(count))
    index.clear()
    for number in range(1000):
        index.append(number, number)
    index.store()
    assert [index.floor(number) for number in range(1000)] == list(range(1000))
    assert files.size_of(index.path) is None


def test_a_pinned_index_that_was_built_anew_is_stored_once_the_name_is_its_own_again() -> None:
    files = SimulatedFiles()
    index = _stored(files, 5000)
    before = files.read(index.path)
    index.pin()
    index.clear()
    index.append(7, 7)
    index.store()
    assert files.read(index.path) == before
    index.release()
    assert index.floor(9) == 0
    index.append(8, 8)
    index.store()
    assert files.read(index.path) == OFFSET_ENTRY.pack(7, 7) + OFFSET_ENTRY.pack(8, 8)
    assert (index.floor(7), index.floor(8)) == (0, 1)


def test_a_sector_that_cannot_be_read_is_damage_and_said() -> None:
    files = SimulatedFiles()
    index = _stored(files, 5000)
    assert index.last == (9998, 14997)
    files.fail("read_at", errno.EIO, times=None)
    with pytest.raises(DamagedFile, match=rf"{index.path}: damaged at byte 0: .*Input/output error"):
        index.floor(100)


def test_entries_that_have_gone_from_the_file_are_damage() -> None:
    files = SimulatedFiles()
    index = _stored(files, 5000)
    files.truncate(index.path, 100)
    with pytest.raises(DamagedFile, match=rf"{index.path}: damaged at byte "):
        index.floor(100)
