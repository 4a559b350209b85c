"""Transactions as the cleaner meets them, batch by batch: which are aborted, whose markers are still needed.

A marker is needed as long as any batch of its transaction is there, an empty one included; after that it stays for
`delete.retention.ms` more, for readers who have read the batches and wait for their end. An entry of the index of
aborted transactions is needed as long as its marker was, before that delay.
"""

from collections.abc import Iterable

from pylog.storage.transactions import AbortedTransaction, Marker


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTransaction], start_offset: int) -> None:
        """For batches from `start_offset` on. `needs` is to be believed only if that is where the log begins."""
        # one that ended before would seem to go on for ever: its marker does not come
        coming = [transaction for transaction in aborted if transaction.last_offset >= start_offset]
        self._coming = sorted(coming, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers with a transaction of which a batch is there
        self.still_needed: list[AbortedTransaction] = []  # for the index of the segment being written

    def _advance(self, last_offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= last_offset:
            transaction = self._coming.pop()
            self._aborting.setdefault(transaction.producer_id, transaction)

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether the transaction of this batch is; the batch is transactional, and ends at `last_offset`."""
        self._advance(last_offset)
        self._seen.add(producer_id)
        return producer_id in self._aborting

    def needs(self, marker: Marker, producer_id: int, last_offset: int) -> bool:
        """Whether anything is left of the transaction that this marker ends."""
        self._advance(last_offset)
        seen = producer_id in self._seen
        self._seen.discard(producer_id)
        if not marker.commit:
            transaction = self._aborting.pop(producer_id, None)
            if transaction is not None and seen:
                self.still_needed.append(transaction)
        return seen
