"""Logs are made and deleted by the disk thread, in the order in which it is asked for.

What is asked for in one turn of the loop is done in one go: a thousand topics then wait for the disk about as long as
one. The metadata that says so is on the disk first.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pylog.storage.data_directory import Key
from pylog.storage.log import PartitionLog
from pylog.storage.manager import LogManager, Wanted

Work = Callable[[list[Any]], Sequence[Any]]


class LogWork:
    def __init__(
        self, logs: LogManager, flush_metadata: Callable[[], None], on_disk: Callable[..., "asyncio.Future[Any]"]
    ) -> None:
        self._logs = logs
        self._flush_metadata = flush_metadata
        self._on_disk = on_disk
        self._work: Work | None = None
        self._asked: list[tuple[Sequence[Any], asyncio.Future[Any]]] = []

    def make(self, wanted: Sequence[Wanted]) -> "asyncio.Future[list[PartitionLog | Exception]]":
        return self._ask(self._make, wanted)

    def _make(self, wanted: list[Wanted]) -> list[PartitionLog | Exception]:
        return self._logs.open_all(wanted, new=True)

    def delete(self, keys: Sequence[Key]) -> "asyncio.Future[list[None]]":
        return self._ask(self._delete, keys)

    def _delete(self, keys: list[Key]) -> list[None]:
        self._logs.delete_all(keys)
        return [None] * len(keys)

    def _ask(self, work: Work, items: Sequence[Any]) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        if work != self._work:
            self._begin()
            self._work = work
            loop.call_soon(self._begin)
        answer = loop.create_future()
        self._asked.append((items, answer))
        return answer

    def _begin(self) -> None:
        work, asked = self._work, self._asked
        self._work, self._asked = None, []
        if work is not None:
            items = [item for some, _ in asked for item in some]
            self._on_disk(self._done, work, items).add_done_callback(lambda done: _answer(asked, done))

    def _done(self, work: Work, items: list[Any]) -> Sequence[Any]:
        self._flush_metadata()
        return work(items)


def _answer(asked: list[tuple[Sequence[Any], "asyncio.Future[Any]"]], done: "asyncio.Future[Sequence[Any]]") -> None:
    """To each its own part."""
    position = 0
    for items, answer in asked:
        if answer.done():  # whoever asked has gone
            pass
        elif done.cancelled():
            answer.cancel()
        elif (error := done.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(done.result()[position : position + len(items)])
        position += len(items)
