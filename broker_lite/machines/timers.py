"""Deadlines: at most one for each key, looked through in the order in which they come due.

Looking changes nothing that can be seen: a deadline stands until it is set anew or taken away. A deadline that moves
back, as a session's does with every heartbeat, costs no more than a look into a dictionary.
"""

import heapq
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=tuple[str, ...])

_SLACK = 64  # stale entries that are not worth sweeping


class Now(NamedTuple):
    """One moment on two clocks. Deadlines are told by the first, which nobody sets; what is kept by the second."""

    timer_ms: int
    wall_ms: int


class Timers(Generic[Key]):
    def __init__(self) -> None:
        self._deadlines_ms: dict[Key, int] = {}
        # For each key an entry that is not later than its deadline; entries that are earlier, or of no key, are stale.
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def set(self, key: Key, deadline_ms: int | None) -> None:
        """None: it is no longer waited for."""
        if deadline_ms is None:
            self._deadlines_ms.pop(key, None)
            return
        before_ms = self._deadlines_ms.get(key)
        self._deadlines_ms[key] = deadline_ms
        if before_ms is None or deadline_ms < before_ms:
            if len(self._heap) > 2 * len(self._deadlines_ms) + _SLACK:
                self._heap = [(deadline, one) for one, deadline in self._deadlines_ms.items()]
                heapq.heapify(self._heap)
            else:
                heapq.heappush(self._heap, (deadline_ms, key))

    def get(self, key: Key) -> int | None:
        return self._deadlines_ms.get(key)

    @property
    def next_ms(self) -> int | None:
        """When the next one is due."""
        while self._heap:
            entry_ms, key = self._heap[0]
            deadline_ms = self._deadlines_ms.get(key)
            if deadline_ms is None:
                heapq.heappop(self._heap)
            elif deadline_ms != entry_ms:
                heapq.heapreplace(self._heap, (deadline_ms, key))
            else:
                return deadline_ms
        return None

    def due(self, now_ms: int) -> list[Key]:
        """The earliest first. They stay due until they are set anew."""
        found: dict[Key, int] = {}
        while (next_ms := self.next_ms) is not None and next_ms <= now_ms:
            deadline_ms, key = heapq.heappop(self._heap)
            found[key] = deadline_ms
        for key, deadline_ms in found.items():
            heapq.heappush(self._heap, (deadline_ms, key))
        return list(found)
