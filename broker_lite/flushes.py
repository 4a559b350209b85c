"""Logs are synced several at a time: none waits until another is on the disk, or until a topic is made or deleted.

Of one log at most one flush is under way, and one more waits, whoever asks for it: it begins later than all of them
have asked, and so does for all of them. So a log that many write to takes one thread of those that there are.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pylog.storage.log import PartitionLog


class Flushes:
    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="flush")
        self._under_way: dict[PartitionLog, asyncio.Future[None]] = {}
        self._waiting: dict[PartitionLog, asyncio.Future[None]] = {}

    def flush(self, log: PartitionLog) -> "asyncio.Future[None]":
        """What is in the log now is on the disk when this is done; it raises if it is not. Others may wait for the
        same future: it is not to be cancelled."""
        if log not in self._under_way:
            return self._begin(log)
        if log not in self._waiting:
            self._waiting[log] = asyncio.get_running_loop().create_future()
        return self._waiting[log]

    def _begin(self, log: PartitionLog) -> "asyncio.Future[None]":
        flushing = asyncio.get_running_loop().run_in_executor(self._threads, log.flush)
        self._under_way[log] = flushing
        flushing.add_done_callback(lambda done: self._ended(log))
        return flushing

    def _ended(self, log: PartitionLog) -> None:
        del self._under_way[log]
        waiting = self._waiting.pop(log, None)
        if waiting is not None:
            self._begin(log).add_done_callback(_told_to(waiting))

    async def close(self) -> None:
        """When all is done that was asked for."""
        while self._under_way:
            await asyncio.wait(self._under_way.values())
        self._threads.shutdown()


def _told_to(waiting: "asyncio.Future[None]") -> "Callable[[asyncio.Future[None]], None]":
    def tell(done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)

    return tell
