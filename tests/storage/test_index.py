"""Sparse indexes: Kafka's bytes, look-ups against a plain list, entries that wait in memory."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage import files
from pylog.storage.index import OFFSET_ENTRY, TIME_ENTRY, Index


def test_offset_entries_are_kafkas_to_the_byte(tmp_path: Path) -> None:
    index = Index(tmp_path / "00000000000000000100.index", OFFSET_ENTRY, 0)
    index.append(101 - 100, 16)
    index.append(150 - 100, 4096)
    index.store()
    assert index.path.read_bytes().hex() == "00000001000000100000003200001000"


def test_time_entries_are_kafkas_to_the_byte(tmp_path: Path) -> None:
    index = Index(tmp_path / "00000000000000000100.timeindex", TIME_ENTRY, 0)
    index.append(1700000000000, 1)
    index.append(1700000000005, 50)
    index.store()
    assert index.path.read_bytes().hex() == "0000018bcfe56800000000010000018bcfe5680500000032"


def test_an_empty_index_knows_nothing(tmp_path: Path) -> None:
    index = Index(tmp_path / "i", OFFSET_ENTRY, 0)
    assert index.floor(1 << 40) == -1
    assert index.last is None
    assert not index.path.exists()


steps = st.lists(st.tuples(st.integers(1, 1 << 12), st.integers(1, 1 << 12)), min_size=1, max_size=700)


@given(steps, st.data())
def test_look_ups_agree_with_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("index") / "i"
    index = Index(path, OFFSET_ENTRY, 0)
    twin: list[tuple[int, int]] = []
    for step in steps:
        last = twin[-1] if twin else (0, 0)
        twin.append((last[0] + step[0], last[1] + step[1]))
        index.append(*twin[-1])
    if data.draw(st.booleans()):
        index.store()
        index = Index(path, OFFSET_ENTRY, path.stat().st_size)
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
    index = Index(tmp_path / "i", OFFSET_ENTRY, 0)
    for number, value in enumerate(values):
        index.append(value, number)
    index.store()
    for number, value in enumerate(values):
        assert index.floor(value) == number
        if value - 1 not in values:
            assert index.floor(value - 1) == number - 1


def test_entries_reach_the_file_in_groups_and_all_of_them_when_stored(tmp_path: Path) -> None:
    index = Index(tmp_path / "i", OFFSET_ENTRY, 0)
    for number in range(1000):
        index.append(number, number)
    stored = index.path.stat().st_size // 8
    assert 0 < stored < 1000
    assert index.floor(10) == 10  # maps the file
    for number in range(1000, 2000):
        index.append(number, number)
    assert index.floor(stored + 100) == stored + 100  # behind the end of the first mapping
    index.store()
    assert index.path.stat().st_size == 2000 * 8


def test_a_full_disk_keeps_the_entries_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, position: int, data: files.Buffer) -> None:
        path.write_bytes(b"\x00" * 5)  # a part of an entry got through
        raise OSError(28, "No space left on device")

    index = Index(tmp_path / "i", OFFSET_ENTRY, 0)
    with monkeypatch.context() as context, caplog.at_level(logging.WARNING):
        context.setattr(files, "write_at", full)
        for number in range(600):
            index.append(number, number)
        assert index.floor(599) == 599
        assert index.floor(300) == 300
    assert "stay in memory" in caplog.text
    index.store()
    assert index.path.read_bytes() == b"".join(OFFSET_ENTRY.pack(n, n) for n in range(600))


def test_a_replaced_index_leaves_an_old_mapping_intact(tmp_path: Path) -> None:
    index = Index(tmp_path / "i", OFFSET_ENTRY, 0)
    index.append(1, 1)
    index.append(5, 5)
    index.store()
    old = Index(index.path, OFFSET_ENTRY, 16)
    assert old.floor(4) == 0
    index.replace(b"")
    assert (index.count, index.last, index.floor(9)) == (0, None, -1)
    assert old[1] == (5, 5)
