"""Text checkpoints: Kafka's bytes, whole or refused with file and line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, OffsetCheckpoint, decode, encode
from pylog.storage.disk import Disk
from pylog.storage.errors import DamagedFile

PATH = Path(RECOVERY_POINTS)
OFFSETS = {("orders", 0): 42, ("a.topic_with-all", 17): 0, ("orders", 2147483647): 2**63 - 1}
TEXT = b"0\n3\norders 0 42\na.topic_with-all 17 0\norders 2147483647 9223372036854775807\n"

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
mappings = st.dictionaries(st.tuples(topics, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=8)


def test_offsets_are_written_as_kafka_writes_them() -> None:
    assert encode(OFFSETS) == TEXT
    assert decode(TEXT, PATH) == OFFSETS


@pytest.mark.parametrize(
    ("data", "offsets"),
    [
        pytest.param(b"", {}, id="Kafka creates the file before it has entries"),
        pytest.param(b"0\n0\n", {}, id="no partitions"),
        pytest.param(b"0\n1\nt  1\t 2\n", {("t", 1): 2}, id="any white space between fields"),
    ],
)
def test_what_kafka_reads_is_read(data: bytes, offsets: dict[tuple[str, int], int]) -> None:
    assert decode(data, PATH) == offsets


@given(mappings)
def test_any_offsets_are_read_back(offsets: dict[tuple[str, int], int]) -> None:
    assert decode(encode(offsets), PATH) == offsets


@pytest.mark.parametrize(
    ("data", "place", "reason"),
    [
        pytest.param(b"1\n0\n", "line 1", "version 1", id="unknown version"),
        pytest.param(b"zero\n0\n", "line 1", "'zero' is no number", id="no version"),
        pytest.param(b"\n0\n", "line 1", "'' is no number", id="empty first line"),
        pytest.param(b"0\n", "line 2", "number of entries is missing", id="no count"),
        pytest.param(b"0\n-1\n", "line 2", "'-1' is no number", id="negative count"),
        pytest.param(b"0\n2\nt 0 1\n", "line 2", "2 entries are announced, 1 follow", id="too few entries"),
        pytest.param(b"0\n0\nt 0 1\n", "line 2", "0 entries are announced, 1 follow", id="too many entries"),
        pytest.param(b"0\n2147483647\nt 0 1\n", "line 2", "2147483647 entries", id="a count to run out of memory by"),
        pytest.param(b"0\n1\nt 0 1", "line 3", "does not end in a newline", id="last newline missing"),
        pytest.param(b"0\n1\nt 0\n", "line 3", "has not 3 fields", id="too few fields"),
        pytest.param(b"0\n1\nt 0 1 2\n", "line 3", "has not 3 fields", id="too many fields"),
        pytest.param(b"0\n2\nt 0 1\n\n", "line 4", "has not 3 fields", id="empty line"),
        pytest.param(b"0\n1\nt x 1\n", "line 3", "'x' is no number", id="partition"),
        pytest.param(
            b"0\n1\nt 2147483648 1\n", "line 3", "is no number from 0 to 2147483647", id="partition too large"
        ),
        pytest.param(b"0\n1\nt 0 -1\n", "line 3", "'-1' is no number", id="negative offset"),
        pytest.param(b"0\n1\nt 0 9223372036854775808\n", "line 3", "is no number", id="offset too large"),
        pytest.param(b"0\n1\nt 0 1_0\n", "line 3", "'1_0' is no number", id="Python's number, not Kafka's"),
        pytest.param(b"0\n1\nt/u 0 1\n", "line 3", "'t/u' cannot name a topic", id="topic"),
        pytest.param(b"0\n1\n\xff\xfe 0 1\n", "line 3", "cannot name a topic", id="no text at all"),
        pytest.param(b"0\n3\nt 0 1\nt 1 1\nt 0 2\n", "line 5", "t-0 is there twice", id="a partition twice"),
        pytest.param(
            b"0\n1\n" + b"9" * 9999 + b"\n", "line 3", "has not 3 fields", id="a long line is not repeated whole"
        ),
    ],
)
def test_a_malformed_file_is_refused_with_file_and_line(data: bytes, place: str, reason: str) -> None:
    with pytest.raises(DamagedFile, match=rf"^{RECOVERY_POINTS}: damaged at {place}: ") as refused:
        decode(data, PATH)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("length", range(1, len(TEXT)))
def test_a_file_that_was_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(DamagedFile):
        decode(TEXT[:length], PATH)


def test_a_checkpoint_holds_what_was_stored_last(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(tmp_path / CLEANER_OFFSETS)
    assert checkpoint.load() == {}
    checkpoint.store(OFFSETS)
    assert checkpoint.path.read_bytes() == TEXT
    checkpoint.store({("t", 1): 7})
    assert OffsetCheckpoint(checkpoint.path).load() == {("t", 1): 7}
    assert [path.name for path in tmp_path.iterdir()] == [CLEANER_OFFSETS]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(tmp_path / CLEANER_OFFSETS)
    checkpoint.path.write_bytes(TEXT[:-4])
    with pytest.raises(DamagedFile, match=f"{CLEANER_OFFSETS}: damaged at line 5"):
        checkpoint.load()


class Recorder(Disk):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def sync(self, path: Path) -> None:
        self.steps.append(f"sync {path.name}")
        super().sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self.steps.append(f"rename to {new.name}")
        super().rename(old, new)


def test_what_was_stored_survives_the_machine(tmp_path: Path) -> None:
    disk = Recorder()
    OffsetCheckpoint(tmp_path / CLEANER_OFFSETS, disk).store(OFFSETS)
    assert disk.steps == [f"sync {CLEANER_OFFSETS}.tmp", f"rename to {CLEANER_OFFSETS}", f"sync {tmp_path.name}"]
