"""Leader epochs: how far each goes, and what is left of them when the log is cut at either end."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pylog.storage.epochs import FILE_NAME, EpochEntry, LeaderEpochs
from pylog.storage.errors import DamagedFile

PATH = Path(FILE_NAME)


def _epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(tuple(EpochEntry(*entry) for entry in entries))


KNOWN = ((2, 5), (4, 10), (7, 30))


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        pytest.param(-1, (-1, -1), id="undefined"),
        pytest.param(0, (0, 5), id="older than all: where the log begins, under its own number"),
        pytest.param(1, (1, 5), id="just older than all"),
        pytest.param(2, (2, 10), id="the first"),
        pytest.param(3, (2, 10), id="one that wrote nothing: the one before it"),
        pytest.param(4, (4, 30), id="in the middle"),
        pytest.param(6, (4, 30), id="before the last"),
        pytest.param(7, (7, 50), id="the last: the end of the log"),
        pytest.param(8, (-1, -1), id="newer than all"),
    ],
)
def test_the_end_of_an_epoch(epoch: int, answer: tuple[int, int]) -> None:
    assert _epochs(*KNOWN).end_offset_for(epoch, 50) == answer


def test_a_log_without_epochs_knows_none() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest is None
    assert epochs.end_offset_for(0, 50) == (-1, -1)
    assert epochs.epoch_for(3) is None
    assert not epochs.truncate_from_end(0)
    assert not epochs.truncate_from_start(10)
    assert not epochs.clear()
    assert sys.getsizeof(epochs) <= 64


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [(4, None), (5, 2), (9, 2), (10, 4), (29, 4), (30, 7), (1000, 7)],
)
def test_the_epoch_of_an_offset(offset: int, epoch: int | None) -> None:
    assert _epochs(*KNOWN).epoch_for(offset) == epoch


@pytest.mark.parametrize(
    ("new", "entries"),
    [
        pytest.param((7, 31), None, id="the same leader writes on"),
        pytest.param((7, 30), None, id="said twice"),
        pytest.param((8, 40), [*KNOWN, (8, 40)], id="a new leader"),
        pytest.param((8, 30), [(2, 5), (4, 10), (8, 30)], id="the last leader wrote nothing"),
        pytest.param((7, 20), [(2, 5), (4, 10), (7, 20)], id="the same leader, from an earlier offset on"),
        pytest.param((9, 7), [(2, 5), (9, 7)], id="offsets that another leader overwrites"),
        pytest.param((3, 50), [(2, 5), (3, 50)], id="an older leader overrules later ones"),
        pytest.param((-1, 50), None, id="a batch that names no epoch"),
    ],
)
def test_a_new_epoch_overrules_what_it_contradicts(new: tuple[int, int], entries: list[tuple[int, int]] | None) -> None:
    epochs = _epochs(*KNOWN)
    assert epochs.assign(*new) == (entries is not None)
    assert list(epochs.entries) == (list(KNOWN) if entries is None else entries)


def test_an_epoch_cannot_start_before_the_first_offset() -> None:
    with pytest.raises(ValueError, match="cannot start at offset -1"):
        LeaderEpochs().assign(0, -1)


@pytest.mark.parametrize(
    ("end", "entries"),
    [(31, KNOWN), (30, KNOWN[:2]), (11, KNOWN[:2]), (10, KNOWN[:1]), (5, ()), (0, ())],
)
def test_epochs_behind_the_end_are_forgotten(end: int, entries: tuple[tuple[int, int], ...]) -> None:
    epochs = _epochs(*KNOWN)
    assert epochs.truncate_from_end(end) == (entries != KNOWN)
    assert epochs.entries == entries


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        pytest.param(4, KNOWN, id="before all"),
        pytest.param(5, KNOWN, id="at the first"),
        pytest.param(6, ((2, 6), (4, 10), (7, 30)), id="inside the first"),
        pytest.param(10, ((4, 10), (7, 30)), id="at the second"),
        pytest.param(29, ((4, 29), (7, 30)), id="at the end of the second"),
        pytest.param(99, ((7, 99),), id="behind all: the last leader is remembered"),
    ],
)
def test_the_epoch_at_the_start_begins_there(start: int, entries: tuple[tuple[int, int], ...]) -> None:
    epochs = _epochs(*KNOWN)
    assert epochs.truncate_from_start(start) == (entries != KNOWN)
    assert epochs.entries == entries


def test_epochs_are_written_as_kafka_writes_them() -> None:
    text = b"0\n3\n2 5\n4 10\n7 30\n"
    assert _epochs(*KNOWN).encode() == text
    assert LeaderEpochs.decode(text, PATH).entries == KNOWN
    assert LeaderEpochs().encode() == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0\n0\n"])
def test_a_file_without_entries_holds_none(data: bytes) -> None:
    assert LeaderEpochs.decode(data, PATH).entries == ()


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param(b"1\n0\n", "line 1", id="unknown version"),
        pytest.param(b"0\n2\n1 2\n", "line 2", id="an entry is missing"),
        pytest.param(b"0\n1\n1 2", "line 3", id="the last newline is missing"),
        pytest.param(b"0\n1\n1\n", "line 3", id="too few fields"),
        pytest.param(b"0\n1\n1 2 3\n", "line 3", id="too many fields"),
        pytest.param(b"0\n1\n-1 2\n", "line 3", id="an epoch that cannot be"),
        pytest.param(b"0\n1\n2147483648 2\n", "line 3", id="an epoch too large"),
        pytest.param(b"0\n1\n1 -2\n", "line 3", id="an offset that cannot be"),
        pytest.param(b"0\n3\n1 2\n2 5\n2 6\n", "line 5", id="an epoch twice"),
        pytest.param(b"0\n2\n2 2\n1 6\n", "line 4", id="epochs out of order"),
        pytest.param(b"0\n2\n1 2\n2 2\n", "line 4", id="offsets out of order"),
    ],
)
def test_a_malformed_file_is_refused_with_file_and_line(data: bytes, place: str) -> None:
    with pytest.raises(DamagedFile, match=rf"^{FILE_NAME}: damaged at {place}: "):
        LeaderEpochs.decode(data, PATH)


class EpochMachine(RuleBasedStateMachine):
    """The twin is the log itself: the epoch of every offset from its start to its end, one by one.

    It knows offsets without a leader (None) as well: what stands before the first epoch that was assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = LeaderEpochs()
        self.start = 0
        self.leaders: list[int | None] = []
        self.ahead: tuple[int, int] | None = None  # an epoch that has begun at the end, and has written nothing yet

    @property
    def end(self) -> int:
        return self.start + len(self.leaders)

    @property
    def newest(self) -> int:
        known = [epoch for epoch in self.leaders if epoch is not None]
        return max([-1, *known, *([self.ahead[0]] if self.ahead else [])])

    @rule(count=st.integers(1, 4), jump=st.integers(0, 3))
    def append(self, count: int, jump: int) -> None:
        epoch = max(self.newest + jump, 0)
        self.epochs.assign(epoch, self.end)
        self.leaders += [epoch] * count
        self.ahead = None

    @rule(count=st.integers(1, 3))
    def append_without_epoch(self, count: int) -> None:
        if self.newest == -1:
            assert not self.epochs.assign(-1, self.end)
            self.leaders += [None] * count

    @rule(jump=st.integers(1, 3))
    def lead(self, jump: int) -> None:
        epoch = self.newest + jump
        assert self.epochs.assign(epoch, self.end)
        self.ahead = (epoch, self.end)

    @rule(data=st.data())
    def cut_the_end(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.start, self.end))
        self.epochs.truncate_from_end(end)
        del self.leaders[end - self.start :]
        self.ahead = None

    @rule(data=st.data())
    def cut_the_start(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, max(self.start, self.end - 1)))
        self.epochs.truncate_from_start(start)
        del self.leaders[: start - self.start]
        self.start = start

    @rule()
    def store_and_load(self) -> None:
        self.epochs = LeaderEpochs.decode(self.epochs.encode(), PATH)

    @invariant()
    def every_answer_is_the_log_s(self) -> None:
        expected = [
            (epoch, offset)
            for offset, (before, epoch) in enumerate(pairwise([None, *self.leaders]), self.start)
            if epoch != before and epoch is not None
        ]
        if self.ahead:
            expected.append(self.ahead)
        assert list(self.epochs.entries) == expected
        for offset, epoch in enumerate(self.leaders, self.start):
            assert self.epochs.epoch_for(offset) == epoch
        for epoch in range(self.newest + 2):
            assert self.epochs.end_offset_for(epoch, self.end) == self.end_of(epoch, expected)

    def end_of(self, epoch: int, entries: list[tuple[int, int]]) -> tuple[int, int]:
        if epoch > self.newest or not entries:
            return -1, -1
        if epoch == self.newest:
            return epoch, self.end
        later = min(start for other, start in entries if other > epoch)
        return max((other for other, _ in entries if other <= epoch), default=epoch), later


TestEpochsAgainstTheLog = EpochMachine.TestCase
