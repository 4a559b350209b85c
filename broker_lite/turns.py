"""A request with much in it takes turns with everybody else's.

What needs nothing but the message, to decode a large one and to encode it, is done by a thread, which makes way for the
loop. What needs the broker's state is done by the loop, which owns it, a turn at a time.
"""

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

LARGE_BYTES = 64 * 1024  # of a message: to decode it takes the loop some milliseconds
TURN_SECONDS = 0.001
_FEW = range(50)  # steps, for which it is not worth while to look at the clock
_THREADS = 2  # they share one interpreter with the loop: more would be in its way, and no faster
_RARELY = 1000  # as `gc` counts it: when some seven million things more are alive than before

_threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="large-message")

# A handler that looks at one thing after the other; between two of them it yields, and others may have their turn.
Steps = Generator[None, None, T]


class Turn:
    """Of a handler that is a coroutine: it asks between any two things that it does."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = monotonic() + TURN_SECONDS

    async def pause(self) -> None:
        """If the turn is over."""
        if monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = monotonic() + TURN_SECONDS


def begun(steps: Steps[T]) -> tuple[bool, T | None]:
    """(whether all of it is done, and what came of it): most is done in the first turn, and needs no task."""
    try:
        for _ in _FEW:
            next(steps)
        end = monotonic() + TURN_SECONDS
        while monotonic() < end:
            next(steps)
    except StopIteration as done:
        return True, done.value
    return False, None


async def finished(steps: Steps[T]) -> T:
    turn = Turn()
    try:
        while True:
            next(steps)
            await turn.pause()
    except StopIteration as done:
        value: T = done.value
        return value


def aside(work: Callable[..., T], *args: object) -> "asyncio.Future[T]":
    """In a thread. It works on what no one else has."""
    return asyncio.get_running_loop().run_in_executor(_threads, work, *args)


class _Collector:
    """Looks for garbage among all that lives; with a million things just decoded that stops everything for long, again
    and again, and finds nothing. While there are such it looks at what is new, and at all of it rarely."""

    def __init__(self) -> None:
        self._large = 0
        self._thresholds = (0, 0, 0)

    @contextmanager
    def mostly_among_new(self) -> Iterator[None]:
        if not self._large:
            self._thresholds = gc.get_threshold()
            gc.set_threshold(*self._thresholds[:2], _RARELY)
        self._large += 1
        try:
            yield
        finally:
            self._large -= 1
            if not self._large:
                gc.set_threshold(*self._thresholds)


COLLECTOR = _Collector()
