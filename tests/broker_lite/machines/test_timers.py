import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.broker_lite.machines.timers import Timers

KEYS = [(letter,) for letter in "abcd"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 20)),
        st.tuples(st.just("unset"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("look"), st.just(KEYS[0]), st.integers(0, 20)),
    ),
    min_size=8,
    max_size=60,
)


@settings(max_examples=300)
@given(STEPS)
def test_timers_are_a_dictionary_of_deadlines(steps: list[tuple[str, tuple[str], int]]) -> None:
    timers: Timers[tuple[str]] = Timers()
    twin: dict[tuple[str], int] = {}
    for what, key, number in steps:
        if what == "set":
            timers.set(key, number)
            twin[key] = number
        elif what == "unset":
            timers.set(key, None)
            twin.pop(key, None)
        else:
            due = timers.due(number)
            assert sorted(due) == sorted(one for one, deadline in twin.items() if deadline <= number)
            assert [twin[one] for one in due] == sorted(twin[one] for one in due), "not the earliest first"
            assert timers.due(number) == due, "looking changed something"
        assert timers.next_ms == min(twin.values(), default=None)
        assert len(timers) == len(twin)
        assert all(timers.get(one) == twin.get(one) for one in KEYS)


@pytest.mark.parametrize("moves", ["back", "forth", "gone"])
def test_what_is_stale_does_not_heap_up(moves: str) -> None:
    timers: Timers[tuple[str]] = Timers()
    rng = random.Random(1)
    for step in range(20_000):
        match moves:
            case "back":
                timers.set((f"{step % 10}",), 1_000 + step)
            case "forth":
                timers.set((f"{step % 10}",), 1_000_000 - step)
            case _:
                timers.set((f"{step}",), rng.randrange(1 << 40))
                timers.set((f"{step}",), None)
    assert len(timers._heap) < 200
