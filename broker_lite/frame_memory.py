"""The memory that requests take while they arrive and while they are worked on, for all connections together.

It is counted as the bytes come, not as they are announced, so a client that promises much and sends nothing holds
nothing. Where it is used up (`queued.max.request.bytes`), who wants more stops reading and waits in line. One of them
is favoured and may go on until its request is dealt with, over the bound: otherwise many halves of requests could wait
for each other for ever. So the bound is exceeded by one request at most, and by what was read of each socket before it
was known to be short.
"""

from typing import Protocol


class Taker(Protocol):
    def try_again(self) -> None: ...


class FrameMemory:
    def __init__(self, bytes_max: int) -> None:
        """0 or less: no bound."""
        self.bytes_max = bytes_max if bytes_max > 0 else 1 << 62
        self.used_bytes = 0
        self.favoured: Taker | None = None
        self._waiting: dict[Taker, None] = {}  # in the order that they came

    @property
    def is_short(self) -> bool:
        return self.used_bytes >= self.bytes_max

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def take(self, taker: Taker, count_bytes: int) -> bool:
        """False: not now; `try_again` is called when there is room."""
        if self.used_bytes + count_bytes > self.bytes_max and self.favoured is not taker:
            if self.favoured is not None:
                self._waiting.setdefault(taker)  # who waits already keeps its place
                return False
            self.favoured = taker
        self._waiting.pop(taker, None)
        self.used_bytes += count_bytes
        return True

    def take_anyway(self, count_bytes: int) -> None:
        """What is there already, and must be kept."""
        self.used_bytes += count_bytes

    def give_back(self, count_bytes: int) -> None:
        self.used_bytes -= count_bytes
        if self._waiting:
            self._look_for_takers()

    def no_more(self, taker: Taker) -> None:
        """Its request has come whole, or never will: the favour goes to who waits longest."""
        self._waiting.pop(taker, None)
        if self.favoured is taker:
            self.favoured = None
            self._look_for_takers()

    def _look_for_takers(self) -> None:
        while self._waiting and (self.favoured is None or not self.is_short):
            taker = next(iter(self._waiting))
            taker.try_again()
            if taker in self._waiting:  # it needs more than there is
                break
