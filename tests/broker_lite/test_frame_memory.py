"""The memory of requests: counted as it comes, shared in the order of asking, and never a deadlock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.broker_lite.frame_memory import FrameMemory


class Reader:
    """Wants so many bytes for its request, in steps, and is done with it when it has them."""

    def __init__(self, memory: FrameMemory, steps: list[int]) -> None:
        self.memory, self.steps = memory, list(steps)
        self.held_bytes = 0
        self.waits = False

    def step(self) -> None:
        if self.waits or not self.steps:
            return
        if self.memory.take(self, self.steps[0]):
            self.held_bytes += self.steps.pop(0)
        else:
            self.waits = True

    def try_again(self) -> None:
        self.waits = False
        self.step()

    @property
    def is_whole(self) -> bool:
        return not self.steps

    def finish(self) -> None:
        held, self.held_bytes = self.held_bytes, 0
        self.memory.give_back(held)
        self.memory.no_more(self)


def test_without_a_bound_everybody_gets_all() -> None:
    memory = FrameMemory(-1)
    readers = [Reader(memory, [1 << 40]) for _ in range(10)]
    for reader in readers:
        reader.step()
    assert all(reader.is_whole for reader in readers)
    assert not memory.is_short


def test_who_would_exceed_the_bound_is_favoured_or_waits() -> None:
    memory = FrameMemory(100)
    first, second, third = Reader(memory, [90]), Reader(memory, [20, 500]), Reader(memory, [20])
    for reader in (first, second, third):
        reader.step()
    assert first.is_whole
    assert memory.favoured is second
    assert third.waits
    second.step()
    assert memory.used_bytes == 610, "one request at most goes over the bound"
    second.finish()
    assert third.is_whole


def test_one_that_goes_leaves_its_favour_to_who_waits_longest() -> None:
    memory = FrameMemory(10)
    readers = [Reader(memory, [100]) for _ in range(4)]
    for reader in readers:
        reader.step()
    assert [reader.is_whole for reader in readers] == [True, False, False, False]
    for number in range(3):
        readers[number].finish()
        assert readers[number + 1].is_whole
        assert memory.favoured is readers[number + 1]
    readers[3].finish()
    assert memory.used_bytes == 0
    assert not memory.is_waited_for


def test_one_that_goes_while_it_waits_is_forgotten() -> None:
    memory = FrameMemory(10)
    first, second, third = (Reader(memory, [100]) for _ in range(3))
    for reader in (first, second, third):
        reader.step()
    memory.no_more(second)
    first.finish()
    assert third.is_whole
    assert not second.is_whole


@given(
    bytes_max=st.integers(1, 300),
    wants=st.lists(st.lists(st.integers(1, 120), min_size=1, max_size=5), min_size=1, max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_everybody_gets_through_and_the_bound_is_exceeded_by_one_request_only(
    bytes_max: int, wants: list[list[int]], order: object
) -> None:
    memory = FrameMemory(bytes_max)
    waiting = [Reader(memory, steps) for steps in wants]
    largest = max(map(sum, wants))
    for _ in range(sum(map(len, wants)) * len(wants) + len(wants)):
        order.shuffle(waiting)  # type: ignore[attr-defined]
        for reader in waiting:
            reader.step()
            assert memory.used_bytes <= bytes_max + largest
        for reader in [one for one in waiting if one.is_whole]:
            waiting.remove(reader)
            reader.finish()
        assert memory.used_bytes == sum(reader.held_bytes for reader in waiting)
    assert not waiting
    assert memory.used_bytes == 0


@pytest.mark.parametrize(("bytes_max", "used", "short"), [(10, 9, False), (10, 10, True), (0, 99, False)])
def test_memory_is_short_when_it_is_used_up(bytes_max: int, used: int, short: bool) -> None:
    memory = FrameMemory(bytes_max)
    memory.take_anyway(used)
    assert memory.is_short == short
