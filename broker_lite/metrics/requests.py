"""Requests: how many of each API, how long they took, what went wrong.

What is added to a request is two looks at the clock and a few integers. Error codes are looked for in the declared
answers, field by field as they are declared; Produce and Fetch, whose answers are made by hand, note theirs themselves.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cache
from typing import Any

from pylog.broker_lite.client import Client
from pylog.broker_lite.connection import Answer, Parts, Unheard
from pylog.broker_lite.metrics.text import Histogram
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.wire import I16, MalformedFrame

# From an answer out of memory to the longest wait of a join.
BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Times:
    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum = 0.0


class RequestStats:
    def __init__(self, api_keys: Iterable[int]) -> None:
        self._times = {key: _Times() for key in api_keys}  # of others the key may be anything, so it is not kept
        self.errors: Counter[tuple[int, int]] = Counter()  # (API key, error code)
        self.failed: Counter[int] = Counter()
        self.malformed = 0

    def times(self) -> Iterator[tuple[int, Histogram]]:
        """Of the APIs that were used."""
        for key, times in self._times.items():
            if any(times.counts):
                yield key, Histogram(BOUNDS_S, times.counts, times.sum)

    def measured(self, answer: Callable[[memoryview, Client], Answer]) -> Callable[[memoryview, Client], Answer]:
        """The same function, but counted and timed. Of a frame that was answered the key is known to be there."""
        now, key_of, times_of = time.perf_counter, I16.unpack_from, self._times

        def measured_answer(frame: memoryview, client: Client) -> Answer:
            start = now()
            try:
                parts = answer(frame, client)
            except Exception as error:
                self._failed(key_of(frame)[0] if len(frame) >= I16.size else -1, error)
                raise
            if parts is not None and not isinstance(parts, list):
                return self._later(key_of(frame)[0], start, parts)
            seconds = now() - start
            times = times_of[key_of(frame)[0]]
            times.counts[bisect_left(BOUNDS_S, seconds)] += 1
            times.sum += seconds
            return parts

        return measured_answer

    async def _later(self, key: int, start: float, parts: Awaitable[Parts | None]) -> Parts | None:
        try:
            answered = await parts
        except Exception as error:  # not that the client has gone, or the broker stops
            self._failed(key, error)
            raise
        seconds = time.perf_counter() - start
        times = self._times[key]
        times.counts[bisect_left(BOUNDS_S, seconds)] += 1
        times.sum += seconds
        return answered

    def _failed(self, key: int, error: BaseException) -> None:
        if isinstance(error, MalformedFrame | Unheard) or key not in self._times:
            self.malformed += 1
        else:
            self.failed[key] += 1

    def note_error(self, key: int, code: int) -> None:
        self.errors[key, code] += 1

    def note_errors(self, key: int, response: Any) -> None:
        """Those in the answer of an API whose messages are declared."""
        for code in error_codes(response):
            self.errors[key, code] += 1

    @staticmethod
    def counted(response: Any) -> Counter[int]:
        """By code, those that `note_errors` would note: of an answer with so much in it that a thread counts them."""
        return Counter(error_codes(response))

    def note_counted(self, key: int, counted: Counter[int]) -> None:
        for code, count in counted.items():
            self.errors[key, code] += count


def error_codes(response: Any) -> Iterator[int]:
    """Every error code in a declared message, and in those that it holds, save 0."""
    cls: Any = type(response)
    has_code, arrays = _shape(cls)
    if has_code and response.error_code != ErrorCode.NONE:
        yield response.error_code
    for name in arrays:
        for item in getattr(response, name) or ():
            yield from error_codes(item)


@cache
def _shape(cls: Any) -> tuple[bool, tuple[str, ...]]:
    """(has it an error code; its arrays of messages in which one may be)."""
    arrays = []
    has_code = False
    for name, spec in cls.specs.items():
        has_code |= name == "error_code"
        if spec.kind == "array" and isinstance(spec.element, type) and _shape(spec.element) != (False, ()):
            arrays.append(name)
    return has_code, tuple(arrays)
