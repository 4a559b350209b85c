"""A bound on the files that are open at once: who opened first closes first, and opens again when needed.

First in, first out rather than least recently used: a busy segment pays one more open in every `limit` opens of
others, and no read or append pays for the bookkeeping.
"""

import threading
from typing import Protocol


class Closable(Protocol):
    def release(self) -> None: ...


class OpenFiles:
    def __init__(self, limit: int = 1 << 30) -> None:
        """`limit` counts holders; each has two descriptors at most, of a log that is read and appended to."""
        self.limit = limit
        self._holders: dict[int, Closable] = {}
        self._changing = threading.RLock()  # several logs may be opened at once

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Closable) -> None:
        with self._changing:
            self._holders.setdefault(id(holder), holder)
            while len(self._holders) > self.limit:
                self._holders[next(iter(self._holders))].release()  # which calls `closed`

    def closed(self, holder: Closable) -> None:
        with self._changing:
            self._holders.pop(id(holder), None)
