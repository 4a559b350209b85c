"""Partitions stay, and when they go no collector is needed: looking through them for garbage would be in vain.

A full collection stops everything, for 20 to 30 ms a thousand partitions, and Python makes one whenever there is a
quarter more to look at. `gc.freeze` takes what there is out of its sight. That is done once all is loaded, and again
when many partitions were made since. Not at every topic, and never again for as many partitions as there were before:
what else is there at that moment, of connections for example, is out of sight too, and stays if it becomes garbage.
"""

import asyncio
import gc
from collections.abc import Callable

FREEZE_EVERY = 500  # partitions
_LOOK_SECONDS = 1


class Garbage:
    def __init__(self, count_partitions: Callable[[], int]) -> None:
        self._count_partitions = count_partitions
        self._frozen = 0
        self._alarm: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """All is loaded."""
        self._freeze(self._count_partitions())
        self._look_later()

    def look(self) -> None:
        count = self._count_partitions()
        if count >= self._frozen + FREEZE_EVERY:
            self._freeze(count)

    def _freeze(self, count: int) -> None:
        gc.freeze()
        self._frozen = count

    def _look_later(self) -> None:
        self._alarm = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._look_later()
        self.look()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
