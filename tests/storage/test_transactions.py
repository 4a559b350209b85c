"""Markers to the byte, and the index of aborted transactions: what it keeps, finds, and refuses to believe."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage import transactions
from pylog.storage.batch import CONTROL, TRANSACTIONAL, assign, check, pack_header, read_header
from pylog.storage.disk import Disk
from pylog.storage.errors import CorruptBatch, DamagedFile, InvalidBatch, UnsupportedBatch
from pylog.storage.ports import Buffer
from pylog.storage.records import Record, encode_batch
from pylog.storage.transactions import (
    ENTRY_BYTES,
    AbortedTransaction,
    Marker,
    TransactionIndex,
    aborted_in,
    encode_marker,
    pack_entries,
    read_marker,
    unpack_entries,
)

# COMMIT at offset 7, leader epoch 3, producer 1000 of epoch 5, coordinator epoch 9; written by Kafka.
COMMIT = bytes.fromhex(
    "0000000000000007000000420000000302b40e86630030000000000000018bcfe568000000018bcfe56800"
    "00000000000003e80005ffffffff000000012000000008000000010c00000000000900"
)
PATH = Path("00000000000000000000.txnindex")


def test_a_marker_is_written_as_kafka_writes_it() -> None:
    batch = encode_marker(1000, 5, Marker(True, 9), 1_700_000_000_000)
    assign(batch, 0, 7, 3)
    assert batch == COMMIT


@pytest.mark.parametrize("marker", [Marker(True, 0), Marker(False, 0), Marker(False, 2**31 - 1)])
def test_a_marker_is_read_back(marker: Marker) -> None:
    batch = encode_marker(3, 0, marker, 5)
    assert read_marker(b"before" + batch, 6) == marker
    header = check(batch)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1


def _control(key: bytes | None, value: bytes | None) -> bytearray:
    return encode_batch([Record(0, 0, key, value)], attributes=TRANSACTIONAL | CONTROL, producer_id=1, producer_epoch=0)


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 7, -1])
def test_control_records_of_another_kind_are_no_markers(kind: int) -> None:
    assert read_marker(_control(struct.pack(">hh", 0, kind), b"whatever")) is None


def test_a_control_batch_that_compaction_emptied_has_no_marker() -> None:
    batch = encode_marker(3, 0, Marker(True, 1), 5)[:61]
    pack_header(batch, 0, read_header(batch)._replace(length=49, record_count=0))
    assert read_marker(batch) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("00010001", "000000000009", id="a later key keeps what an earlier one had"),
        pytest.param("00000001ffff", "00010000000900ff", id="fields that a later version adds are skipped"),
    ],
)
def test_markers_of_later_versions_are_read_by_what_is_known_of_them(key: str, value: str) -> None:
    assert read_marker(_control(bytes.fromhex(key), bytes.fromhex(value))) == Marker(True, 9)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param(None, b"", "key of a control record is null", id="no key"),
        pytest.param(b"\0\0\0", b"", "key of a control record is 3 bytes", id="short key"),
        pytest.param(b"\xff\xff\0\1", b"\0\0\0\0\0\1", "version -1", id="key of a version that cannot be"),
        pytest.param(b"\0\0\0\1", None, "value of a marker is null", id="no value"),
        pytest.param(b"\0\0\0\1", b"\0\0\0\0\1", "value of a marker is 5 bytes", id="short value"),
        pytest.param(b"\0\0\0\0", b"\x80\0\0\0\0\1", "version -32768", id="value of a version that cannot be"),
    ],
)
def test_a_malformed_marker_is_refused(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(InvalidBatch, match=reason):
        read_marker(_control(key, value))


@pytest.mark.parametrize("position", range(16, len(COMMIT)))
def test_a_marker_with_a_flipped_bit_is_refused(position: int) -> None:
    broken = bytearray(COMMIT)
    broken[position] ^= 0x10
    with pytest.raises((CorruptBatch, UnsupportedBatch)):
        read_marker(broken)


# -- the codec

ENTRIES = [AbortedTransaction(1000, 10, 20, 15), AbortedTransaction(7, 15, 31, 32)]
ENTRIES_HEX = (
    "000000000000000003e8000000000000000a0000000000000014000000000000000f"
    "00000000000000000007000000000000000f000000000000001f0000000000000020"
)


def test_entries_are_written_as_kafka_writes_them() -> None:
    assert pack_entries(ENTRIES).hex() == ENTRIES_HEX
    assert unpack_entries(bytes.fromhex(ENTRIES_HEX), PATH) == ENTRIES


numbers = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.builds(AbortedTransaction, numbers, numbers, numbers, numbers)))
def test_any_entries_are_read_back(entries: list[AbortedTransaction]) -> None:
    assert unpack_entries(pack_entries(entries), PATH) == entries


@pytest.mark.parametrize("surplus", [1, 33])
def test_bytes_behind_the_last_whole_entry_are_refused_with_their_place(surplus: int) -> None:
    with pytest.raises(DamagedFile, match=rf"txnindex: damaged at byte 68: {surplus} bytes"):
        unpack_entries(bytes.fromhex(ENTRIES_HEX) + bytes(surplus), PATH)


def test_an_entry_of_an_unknown_version_is_refused_with_its_place() -> None:
    data = bytearray.fromhex(ENTRIES_HEX)
    data[ENTRY_BYTES + 1] = 1
    with pytest.raises(DamagedFile, match=r"txnindex: damaged at byte 134: an entry of version 1"):
        unpack_entries(data, PATH, position=100)


# -- the search

gaps = st.integers(1, 5)


@st.composite
def aborted(draw: st.DrawFn) -> list[AbortedTransaction]:
    """A log of transactions by a few producers, some of them aborted: as a segment's index would list those."""
    offset = 0
    open_since: dict[int, int] = {}
    entries = []
    for producer_id, commit in draw(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30)):
        offset += draw(gaps)
        if producer_id not in open_since:
            open_since[producer_id] = offset
            continue
        first = open_since.pop(producer_id)
        if not commit:
            stable = min(open_since.values(), default=offset + 1)
            entries.append(AbortedTransaction(producer_id, first, offset, stable))
    return entries


@given(aborted())
def test_a_search_finds_what_looking_at_all_entries_finds(entries: list[AbortedTransaction]) -> None:
    offsets = {offset + by for entry in entries for offset in entry[1:] for by in (-1, 0, 1)}
    for start in offsets:
        for end in offsets:
            expected = [entry for entry in entries if entry.last_offset >= start and entry.first_offset < end]
            assert aborted_in(entries, start, end) == expected


def test_a_search_draws_no_entry_that_cannot_matter() -> None:
    def entries() -> Iterator[AbortedTransaction]:
        yield AbortedTransaction(1, 0, 5, 6)
        yield AbortedTransaction(1, 8, 9, 10)
        raise AssertionError("every later transaction begins at 10 or behind")

    assert aborted_in(entries(), 2, 10) == [AbortedTransaction(1, 0, 5, 6), AbortedTransaction(1, 8, 9, 10)]


# -- the file


class FaultyDisk(Disk):
    """Takes only a part of the next write."""

    def __init__(self) -> None:
        self.room_bytes: int | None = None

    def write_at(self, path: Path, position: int, data: Buffer) -> None:
        if self.room_bytes is None:
            super().write_at(path, position, data)
        else:
            super().write_at(path, position, memoryview(data)[: self.room_bytes])
            raise OSError(28, "No space left on device")


def _entry(number: int) -> AbortedTransaction:
    return AbortedTransaction(number % 3, 10 * number, 10 * number + 5, 10 * number + 6)


def _index(directory: Path, count: int = 0, disk: Disk | None = None) -> TransactionIndex:
    index = TransactionIndex(directory / PATH.name, disk or Disk())
    if count:
        index.path.write_bytes(pack_entries(_entry(number) for number in range(count)))
    return index


def test_the_file_comes_with_the_first_entry(tmp_path: Path) -> None:
    index = _index(tmp_path)
    assert list(index.entries()) == []
    index.check(0, 0)
    index.truncate(0)
    assert not index.path.exists()
    index.append(_entry(0))
    index.append(_entry(1))
    assert index.path.read_bytes() == pack_entries([_entry(0), _entry(1)])


@pytest.mark.parametrize("chunk", [1, 2, 3, 10])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_entries_are_read_from_an_offset_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, count: int
) -> None:
    monkeypatch.setattr(transactions, "_CHUNK_ENTRIES", chunk)
    index = _index(tmp_path, count)
    for start in range(10 * count + 2):
        expected = [_entry(number) for number in range(count) if _entry(number).last_offset >= start]
        assert list(index.entries(start)) == expected


@pytest.mark.parametrize(
    ("offset", "kept"),
    [
        pytest.param(26, 3, id="behind the last marker"),
        pytest.param(25, 2, id="at the last marker"),
        pytest.param(16, 2, id="inside the last transaction"),
        pytest.param(15, 1, id="at the second marker"),
        pytest.param(0, 0, id="all of it"),
    ],
)
def test_truncation_forgets_the_markers_from_an_offset_on(tmp_path: Path, offset: int, kept: int) -> None:
    index = _index(tmp_path, 3)
    index.truncate(offset)
    assert list(index.entries()) == [_entry(number) for number in range(kept)]
    assert index.path.exists() == bool(kept)


def test_an_append_that_found_no_room_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    disk = FaultyDisk()
    index = _index(tmp_path, 2, disk)
    disk.room_bytes = 20
    with pytest.raises(OSError, match="No space"):
        index.append(_entry(2))
    assert list(index.entries()) == [_entry(0), _entry(1)]
    disk.room_bytes = None
    index.append(_entry(3))
    assert list(index.entries()) == [_entry(0), _entry(1), _entry(3)]


def test_an_append_overwrites_what_a_crash_left_of_another(tmp_path: Path) -> None:
    index = _index(tmp_path, 2)
    index.path.write_bytes(index.path.read_bytes() + b"\1" * 33)
    index.append(_entry(2))
    assert list(index.entries()) == [_entry(0), _entry(1), _entry(2)]


def test_a_sound_index_passes_the_check(tmp_path: Path) -> None:
    _index(tmp_path, 5).check(5, 46)


@pytest.mark.parametrize(
    ("entries", "place"),
    [
        pytest.param([(1, 0, 99, 99)], 0, id="a marker before the segment"),
        pytest.param([(1, 101, 105, 106), (1, 107, 200, 201)], 34, id="a marker behind the segment"),
        pytest.param([(1, 101, 105, 106), (2, 102, 105, 106)], 34, id="two transactions with one marker"),
        pytest.param([(1, 101, 105, 106), (2, 102, 104, 105)], 34, id="markers out of order"),
        pytest.param([(-1, 101, 105, 106)], 0, id="no producer"),
        pytest.param([(1, 105, 105, 106)], 0, id="no data"),
        pytest.param([(1, -1, 105, 106)], 0, id="a first offset that cannot be"),
        pytest.param([(1, 101, 105, 107)], 0, id="a last stable offset behind the marker"),
        pytest.param([(1, 101, 105, -1)], 0, id="a last stable offset that cannot be"),
        pytest.param([(0, 0, 0, 0)], 0, id="zeros, as a crash of the machine leaves them"),
    ],
)
def test_entries_that_cannot_be_are_found_with_their_place(
    tmp_path: Path, entries: list[tuple[int, int, int, int]], place: int
) -> None:
    index = _index(tmp_path)
    index.path.write_bytes(pack_entries(AbortedTransaction(*entry) for entry in entries))
    with pytest.raises(DamagedFile, match=rf"{PATH.name}: damaged at byte {place}: "):
        index.check(0 if entries[0] == (0, 0, 0, 0) else 100, 200)


def test_a_torn_entry_is_found_with_its_place(tmp_path: Path) -> None:
    index = _index(tmp_path, 3)
    index.path.write_bytes(index.path.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match="damaged at byte 68: 33 bytes"):
        list(index.entries())
    with pytest.raises(DamagedFile, match="damaged at byte 68: 33 bytes"):
        index.check(0, 100)


@given(st.lists(st.tuples(st.sampled_from(["append", "truncate"]), st.integers(0, 60)), max_size=20))
def test_any_changes_leave_what_a_plain_list_holds(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int]]
) -> None:
    index = _index(tmp_path_factory.mktemp("index"))
    twin: list[AbortedTransaction] = []
    for change, number in changes:
        if change == "append":
            entry = _entry(twin[-1].last_offset // 10 + 1 + number if twin else number)
            index.append(entry)
            twin.append(entry)
        else:
            index.truncate(10 * number)
            twin = [entry for entry in twin if entry.last_offset < 10 * number]
        assert list(index.entries()) == twin
        assert all(before.last_offset < after.last_offset for before, after in pairwise(twin))
