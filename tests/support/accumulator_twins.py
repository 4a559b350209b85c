"""What an accumulator remembers, seen from without: the numbers of batches that leave, and pauses behind failures."""

from collections import Counter

from pylog.connector.client.accumulator import Identity, PartitionQueue, TopicPartition
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.pending_batch import PendingBatch


class Numbers:
    """Of each partition: sequences count from 0 without gaps, and stay with their batches. When one is spoilt, and only
    then, they begin anew under another epoch or producer id."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, tuple[Identity, int]] = {}
        self._given: dict[PendingBatch, tuple[Identity, int, int]] = {}
        self._spoilt: set[TopicPartition] = set()

    def leaves(self, batch: PendingBatch, identity: Identity, is_alone: bool) -> bool:
        """Whether counting begins anew. `is_alone`: nothing else of its partition is in flight."""
        place, sequence = batch.place, batch.sequence
        assert sequence is not None
        number = identity, sequence, batch.record_count
        given = self._given.get(batch)
        if given is not None and given[:2] == number[:2]:
            assert given == number, "a copy of more records"
            return False
        last, expected = self._next.get(place, (None, 0))
        is_anew = identity != last
        if is_anew:
            expected = 0
            assert last is None or place in self._spoilt, "counting begins anew for nothing"
            assert is_alone, "counting begins anew, and what is in flight does not know"
            self._spoilt.discard(place)
        assert place not in self._spoilt, "behind a gap"
        assert sequence == expected
        self._given[batch] = number
        self._next[place] = identity, sequence + batch.record_count
        return is_anew

    def spoil(self, batch: PendingBatch) -> None:
        """Its sequence, if it has one, is given up."""
        if batch.sequence is not None:
            self._spoilt.add(batch.place)

    def is_spoilt(self, place: TopicPartition) -> bool:
        return place in self._spoilt


class Pauses:
    """Of each partition: they double with each failure in a row, and what fails during one does not count."""

    def __init__(self, config: ClientConfig) -> None:
        self._first, self._longest = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
        self._until: dict[TopicPartition, float] = {}
        self._failures: Counter[TopicPartition] = Counter()

    def failed(self, queue: PartitionQueue, now: float) -> None:
        until = self._until.get(queue.place, 0.0)
        if until <= now:
            self._failures[queue.place] += 1
            pause = min(self._first * 2 ** (self._failures[queue.place] - 1), self._longest)
            assert 0.79 * pause < queue.retry_at - now < 1.21 * pause
            until = self._until[queue.place] = queue.retry_at
        assert queue.retry_at == until

    def succeeded(self, place: TopicPartition) -> None:
        self._failures[place] = 0
