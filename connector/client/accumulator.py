"""Batches that wait for their turn: a queue for each partition, what may leave it, and in which order.

No I/O, no clock, no lock: callers bring the time and keep each other out. Invariants, for each partition:

- `in_flight`, then `waiting`, are its batches in the order of `send`, but for what came back, which waits before those
  that were sent after it; only the last one is still filled.
- A batch may leave when it is full, has waited `linger.ms`, somebody waits for memory, or somebody flushes; one that
  comes back leaves again after a pause.
- What is in flight is so to one leader: when another takes over, nothing follows before all of it is answered.
- Until the leader has taken a batch nothing follows it, and after a failure nothing does until all that was in flight
  is answered. So what is sent again is sent in its order. Nothing new follows what is sent again before that is
  settled: a broker remembers the last five batches of a producer, and would no longer know the copy.
- With idempotence a batch keeps its sequence for as long as it may be in the log: the broker then knows a copy when it
  sees one. Where a sequence is given up there is a gap, which no broker lets through: once nothing that has a sequence
  is left, the epoch is raised and counting begins anew. An epoch is a partition's own, for so the broker sees it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import ClientError
from pylog.connector.client.pending_batch import Headers, PendingBatch, Reservation, record_bytes_max
from pylog.connector.client.retry import backoff_ms
from pylog.storage.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TopicPartition = tuple[str, int]
_EPOCH_MAX = 0x7FFF
_SEQUENCES = 1 << 31  # after the last one comes 0


class Identity(NamedTuple):
    """As InitProducerId gave it."""

    producer_id: int
    epoch: int


MadeBatch = tuple[int, memoryview, int]  # (partition, record batch whose CRC need not be right, record count)
NO_IDENTITY = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class PartitionQueue:
    __slots__ = (
        "_orders",
        "error",
        "failures",
        "has_gap",
        "identity",
        "in_flight",
        "is_proven",
        "next_sequence",
        "node",
        "place",
        "resent",
        "retry_at",
        "waiting",
    )

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.waiting: deque[PendingBatch] = deque()
        self.in_flight: deque[PendingBatch] = deque()
        self.node: int | None = None  # the leader that has those in flight
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.has_gap = False  # a sequence was given up that batches behind it count on
        self.is_proven = False  # the leader has taken a batch, and refused none since
        self.resent = 0  # of those in flight: sent before
        self.retry_at = 0.0
        self.failures = 0
        self.error: ClientError | None = None  # the last
        self._orders = 0

    def next_order(self) -> tuple[int, ...]:
        self._orders += 1
        return (self._orders,)

    def send(self) -> PendingBatch:
        """The first that waits is in flight."""
        batch = self.waiting.popleft()
        self.in_flight.append(batch)
        batch.is_full = True
        batch.attempts += 1
        self.resent += batch.attempts > 1
        return batch

    def remove(self, batch: PendingBatch) -> None:
        """Wherever it is."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
            self.resent -= batch.attempts > 1
        else:
            self.waiting.remove(batch)

    def put_back(self, batch: PendingBatch) -> None:
        """To its place among those that wait."""
        assert batch in self.in_flight
        self.remove(batch)
        behind = 0
        while behind < len(self.waiting) and self.waiting[behind].order < batch.order:
            behind += 1
        self.waiting.insert(behind, batch)

    def deadlines(self) -> Iterator[float]:
        """The first of what waits, and of what is in flight and not given up: those behind have later ones."""
        if self.waiting:
            yield self.waiting[0].deadline
        for batch in self.in_flight:
            if batch.promise.outcome is None:
                yield batch.deadline
                return

    def is_first(self, batch: PendingBatch) -> bool:
        """Whether all that was sent before it is settled."""
        return self.in_flight[0] is batch and not (self.waiting and self.waiting[0].order < batch.order)


class Accumulator:
    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._batch_size = min(config.batch_size, config.max_request_size)
        self._linger = config.linger_ms / 1000
        self._delivery = config.delivery_timeout_ms / 1000
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}  # with batches; who just sent stands last
        self.used_bytes = 0
        self.waiting_for_room = 0  # callers
        self.flushing = 0  # callers
        self.identity: Identity | None = None if config.enable_idempotence else NO_IDENTITY

    # What comes

    def has_room(self, size_bytes: int) -> bool:
        """Something larger than all of the memory finds room when there is nothing else."""
        return not self.used_bytes or self.used_bytes + size_bytes <= self._config.buffer_memory

    def append(
        self,
        place: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        now: float,
    ) -> tuple[PendingBatch, int, bool]:
        """The batch that has the record, its index there, and whether the sender should look."""
        queue = self._queue(place)
        record_bytes = record_bytes_max(key, value, headers)
        last = queue.waiting[-1] if queue.waiting else None
        if last is not None and not last.attempts and last.has_room(record_bytes, self._batch_size):
            batch, before_bytes = last, last.reservation.size_bytes
        else:
            batch, before_bytes = PendingBatch(*place, now, now + self._delivery, queue.next_order()), 0
        index = batch.append(timestamp_ms, key, value, headers)
        self.used_bytes += batch.reservation.size_bytes - before_bytes
        is_new = batch is not last
        if is_new:  # queued only now: of a record that cannot be written there is no empty batch left
            queue.waiting.append(batch)
        if batch.size_bytes >= self._batch_size:
            batch.is_full = True
        return batch, index, is_new or batch.is_full

    def add(self, topic: str, made: Sequence[MadeBatch], now: float) -> list[PendingBatch]:
        """Whole batches that share their memory. Only the last of each partition lingers."""
        size_bytes = sum(len(records) for _, records, _ in made)
        reservation = Reservation(size_bytes, len(made))
        self.used_bytes += size_bytes
        added: list[PendingBatch] = []
        deadline = now + self._delivery
        for partition, records, count in made:
            queue = self._queue((topic, partition))
            batch = PendingBatch.of_records(topic, partition, records, count, now, deadline, queue.next_order())
            batch.reservation = reservation
            queue.waiting.append(batch)
            added.append(batch)
        return added

    def _queue(self, place: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = PartitionQueue(place)
        self._busy.setdefault(place, queue)
        return queue

    # What may leave

    @property
    def is_empty(self) -> bool:
        return not self._busy

    def batches(self) -> list[PendingBatch]:
        """All that are not settled."""
        return [batch for queue in self._busy.values() for batch in (*queue.in_flight, *queue.waiting)]

    def due(self, now: float) -> list[PartitionQueue]:
        """Whose first batch may leave."""
        return [queue for queue in self._busy.values() if (at := self._due_at(queue)) is not None and at <= now]

    def next_due(self, now: float) -> float | None:
        """When more may leave than now, or something is given up, if nothing else happens."""
        times: list[float] = []
        for queue in self._busy.values():
            if (due := self._due_at(queue)) is not None and due > now:
                times.append(due)
            times += queue.deadlines()
        return min(times, default=None)

    def _due_at(self, queue: PartitionQueue) -> float | None:
        """None: not before an answer has come."""
        if not queue.waiting or (queue.in_flight and not queue.is_proven):
            return None
        first = queue.waiting[0]
        if queue.has_gap and first.sequence is None and queue.in_flight:
            return None
        if first.attempts:
            return queue.retry_at
        if queue.resent:
            return None
        if first.is_full or len(queue.waiting) > 1 or self.waiting_for_room or self.flushing:
            return queue.retry_at
        return max(queue.retry_at, first.created + self._linger)

    def take(self, queue: PartitionQueue) -> PendingBatch:
        """The first batch of a queue that is due: it is in flight, and its sequence is its own."""
        if queue.waiting[0].sequence is None and self._config.enable_idempotence:
            self._number(queue, queue.waiting[0])
        self._busy[queue.place] = self._busy.pop(queue.place)
        return queue.send()

    def _number(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        assert self.identity is not None
        if queue.has_gap:
            self._begin_anew(queue)
        if queue.identity is None:
            queue.identity, queue.next_sequence = self.identity, 0
        batch.sequence = queue.next_sequence
        queue.next_sequence = (queue.next_sequence + batch.record_count) % _SEQUENCES

    def _begin_anew(self, queue: PartitionQueue) -> None:
        """Nothing is in flight, and what waits is not in the log."""
        assert queue.identity is not None
        assert self.identity is not None
        queue.has_gap = queue.is_proven = False
        queue.next_sequence = 0
        for waiting in queue.waiting:
            waiting.sequence = None
        raised = Identity(queue.identity.producer_id, queue.identity.epoch + 1)
        queue.identity = raised if raised.epoch <= _EPOCH_MAX else self.identity

    @property
    def needs_identity(self) -> bool:
        """A producer id, before anything can leave: the first, or another because all epochs of it are used."""
        if self.identity is None:
            return bool(self._busy)
        return any(
            queue.has_gap and queue.identity is not None and queue.identity == (self.identity.producer_id, _EPOCH_MAX)
            for queue in self._busy.values()
        )

    def identity_of(self, batch: PendingBatch) -> Identity:
        return self._queues[batch.place].identity or NO_IDENTITY

    # What was answered

    def is_in_flight(self, batch: PendingBatch) -> bool:
        """False for one that was given up before its answer came."""
        return batch in self._queues[batch.place].in_flight

    def acknowledge(self, batch: PendingBatch) -> None:
        queue = self._queues[batch.place]
        if queue.is_first(batch):
            queue.is_proven = True
        queue.failures, queue.error = 0, None
        self._settle(queue, batch)

    def retry(self, batch: PendingBatch, now: float, error: ClientError) -> None:
        """It comes back: it may or may not be in the log."""
        queue = self._queues[batch.place]
        queue.error = error
        queue.is_proven = False
        queue.put_back(batch)
        if queue.retry_at <= now:  # a request that is lost brings several back at once
            queue.failures += 1
            queue.retry_at = now + backoff_ms(self._config, queue.failures) / 1000

    def renumber(self, batch: PendingBatch, now: float, error: ClientError) -> None:
        """It comes back, and is not in the log: the broker does not count as we do. If others before it are not settled
        they are why; else counting begins anew."""
        queue = self._queues[batch.place]
        if queue.is_first(batch):
            queue.has_gap = True
            batch.sequence = None
        self.retry(batch, now, error)

    def split(self, batch: PendingBatch, level: int | None) -> None:
        """It is not in the log, and too large for it. StorageError if its records cannot be told apart."""
        halves = batch.split(level)
        queue = self._queues[batch.place]
        queue.is_proven = False
        queue.has_gap = queue.has_gap or batch.sequence is not None
        queue.put_back(batch)
        at = queue.waiting.index(batch)
        queue.waiting.remove(batch)
        for half in reversed(halves):
            queue.waiting.insert(at, half)
            self.used_bytes += half.reservation.size_bytes
        self._release(batch)

    def give_up(self, batch: PendingBatch) -> None:
        """Whether it was sent or not."""
        queue = self._queues[batch.place]
        if batch.sequence is not None:
            queue.has_gap = True
        self._settle(queue, batch)

    def expire(self, now: float) -> list[PendingBatch]:
        """Those whose time is up. One in flight stays there until it is answered, since others count on it."""
        found: list[PendingBatch] = []
        for queue in list(self._busy.values()):
            if queue.in_flight and queue.in_flight[0].deadline <= now:
                found += [batch for batch in queue.in_flight if batch.deadline <= now and batch.promise.outcome is None]
            while queue.waiting and queue.waiting[0].deadline <= now:
                found.append(queue.waiting[0])
                self.give_up(queue.waiting[0])
        return found

    def blame(self, error: ClientError, places: Iterable[TopicPartition] | None = None) -> None:
        """For what waits, there or everywhere: it cannot leave."""
        for queue in self._busy.values() if places is None else [self._queues[place] for place in places]:
            queue.error = error

    def oldest(self) -> PendingBatch | None:
        """What has waited longest for its outcome."""
        busy = self._busy.values()
        firsts = [batches[0] for queue in busy for batches in (queue.in_flight, queue.waiting) if batches]
        return min(firsts, key=lambda batch: batch.created, default=None)

    def last_error(self, batch: PendingBatch) -> ClientError | None:
        return self._queues[batch.place].error

    def _settle(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        queue.remove(batch)
        self._release(batch)
        if not queue.in_flight and not queue.waiting:
            self._busy.pop(queue.place, None)

    def _release(self, batch: PendingBatch) -> None:
        batch.reservation.batches -= 1
        if not batch.reservation.batches:
            self.used_bytes -= batch.reservation.size_bytes

    def unsent(self, topics: Iterable[str]) -> Iterator[PendingBatch]:
        """What waits for these topics."""
        wanted = set(topics)
        for queue in list(self._busy.values()):
            if queue.place[0] in wanted:
                yield from list(queue.waiting)
