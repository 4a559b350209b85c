"""The transactions that were aborted in one segment: those of its `.txnindex`, and those that could not be stored yet.

A marker is in the log before its transaction comes here, so noting it must not fail: it waits in memory, and the
recovery point with it.
"""

import logging

from pylog.storage.transactions import AbortedTransaction, TransactionIndex

_log = logging.getLogger(__name__)


class Aborts:
    __slots__ = ("_index", "_pinned", "_waiting")

    def __init__(self, index: TransactionIndex) -> None:
        self._index = index
        self._waiting: list[AbortedTransaction] = []  # which could not be stored
        self._pinned: list[AbortedTransaction] | None = None  # all, while the name may be another file's

    def entries(self) -> list[AbortedTransaction]:
        if self._pinned is not None:
            return self._pinned
        return [*self._index.entries(), *self._waiting]

    def note(self, transaction: AbortedTransaction) -> None:
        self._waiting.append(transaction)
        try:
            self.store()
        except OSError as error:
            _log.warning("%s: %s; an entry stays in memory for now", self._index.path, error)

    @property
    def are_waiting(self) -> bool:
        return bool(self._waiting)

    def store(self) -> None:
        if self._pinned is None:
            while self._waiting:
                self._index.append(self._waiting[0])
                del self._waiting[0]

    def sync(self) -> None:
        self._index.sync()

    def truncate(self, next_offset: int) -> None:
        self._waiting = [entry for entry in self._waiting if entry.last_offset < next_offset]
        self._index.truncate(next_offset)

    def pin(self) -> None:
        self._pinned = self.entries()

    def release(self) -> None:
        self._pinned = None
