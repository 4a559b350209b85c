"""Files that are no longer part of any log, each kept until its time has come: somebody may be about to open it.

Only the disk's thread buries and digs up. What a stop leaves here the next start removes: the names say what they are.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from pathlib import Path

from pylog.storage.ports import Clock


class Graveyard:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buried: list[tuple[int, Path]] = []  # when to remove which file; a heap

    def bury(self, path: Path, delay_ms: int) -> None:
        heappush(self._buried, (self._clock.now_ms() + delay_ms, path))

    def due(self) -> Iterator[Path]:
        """Those whose time has come; each is given once."""
        now_ms = self._clock.now_ms()
        while self._buried and self._buried[0][0] <= now_ms:
            yield heappop(self._buried)[1]
