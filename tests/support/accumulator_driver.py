"""What a producer does around its accumulator: callers that wait for room or flush, and one who sends. One act at a
time, by a clock that is turned; the brokers are `producer_leaders`.

Whoever acts looks: each batch that leaves may do so, each answer is true, and what is told is told in time."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.accumulator import Accumulator, Identity, PartitionQueue, TopicPartition
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.delivery import BatchPromise, Outcome
from pylog.connector.client.errors import ClientError, kafka_error
from pylog.connector.client.pending_batch import PendingBatch, record_bytes_max
from pylog.storage import codecs
from pylog.storage.batch import HEADER_BYTES
from pylog.storage.records import Record, encode_batch
from tests.support.accumulator_twins import Numbers, Pauses
from tests.support.producer_leaders import Answer, Leaders

LOST = kafka_error(ErrorCode.NETWORK_EXCEPTION, "writing")
PASSING = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
GIVEN_UP = Outcome(-1, -1, ClientError("given up"))


class Connects(Enum):
    AT_ONCE = auto()
    LATER = auto()
    NEVER = auto()


class Caller(NamedTuple):
    """Who waits for room."""

    size_bytes: int
    until: float
    enter: Callable[[], None]


class Sent(NamedTuple):
    """A record, and where its outcome will be."""

    place: TopicPartition
    value: bytes
    promise: BatchPromise
    number: int  # in that batch

    @property
    def outcome(self) -> tuple[Outcome | None, int]:
        """With the record's place in its batch."""
        promise, index = self.promise.of(self.number)
        return promise.outcome, index


class Driver:
    """`epochs` are those of the producer ids that brokers give out, one after the other; of all others, the last."""

    def __init__(self, config: ClientConfig, leaders: Leaders, epochs: Sequence[int]) -> None:
        self.accumulator = Accumulator(config)
        self.leaders = leaders
        self.now = 1000.0
        self.sent: list[Sent] = []
        self.line: list[Caller] = []
        self.flushes: list[list[BatchPromise]] = []
        self.known: dict[TopicPartition, int] = {}  # leaders, as the client believes
        self.proven: set[TopicPartition] = set()  # the leader has taken a batch and all before it, and sent none back
        self.numbers = Numbers()
        self._pauses = Pauses(config)
        self._config = config
        self._epochs = list(epochs)
        self._ids = 0
        self._made: set[PendingBatch] = set()  # by callers, whole
        self._connecting: dict[int, list[PendingBatch]] = {}  # a request for each leader to which there is none yet
        self._came_back: dict[PendingBatch, float] = {}

    # Callers

    def append(self, place: TopicPartition, value: bytes) -> None:
        self._enter(record_bytes_max(None, value, ()), lambda: self._append(place, value))

    def _append(self, place: TopicPartition, value: bytes) -> None:
        asleep = self._wakes_for()
        batch, index, wants_look = self.accumulator.append(place, 0, None, value, (), self.now)
        assert batch.record_count == 1 or batch.size_bytes <= self._config.batch_size
        assert wants_look or self._wakes_for() == asleep, "nobody looks, and there is more to do, or earlier"
        self.sent.append(Sent(place, value, batch.promise, index))

    def _wakes_for(self) -> tuple[set[TopicPartition], float | None]:
        due = {queue.place for queue in self.accumulator.due(self.now)}
        return due, self.accumulator.next_due(self.now)

    def add(self, topic: str, parts: Sequence[tuple[int, Sequence[bytes]]]) -> None:
        """A table: its batches share their memory."""
        made = [(partition, _encoded(values), len(values)) for partition, values in parts]
        self._enter(sum(len(records) for _, records, _ in made), lambda: self._add(topic, parts, made))

    def _add(
        self, topic: str, parts: Sequence[tuple[int, Sequence[bytes]]], made: list[tuple[int, memoryview, int]]
    ) -> None:
        batches = self.accumulator.add(topic, made, self.now)
        self._made.update(batches)
        for (partition, values), batch in zip(parts, batches, strict=True):
            for index, value in enumerate(values):
                self.sent.append(Sent((topic, partition), value, batch.promise, index))

    def _enter(self, size_bytes: int, enter: Callable[[], None]) -> None:
        if not self.line and self.accumulator.has_room(size_bytes):
            self._let_in(size_bytes, enter)
        else:
            self.line.append(Caller(size_bytes, self.now + self._config.max_block_ms / 1000, enter))
            self.accumulator.waiting_for_room += 1

    def _let_in(self, size_bytes: int, enter: Callable[[], None]) -> None:
        enter()
        assert self.accumulator.used_bytes <= max(self._config.buffer_memory, size_bytes) + HEADER_BYTES

    def flush(self) -> None:
        self.flushes.append([batch.promise for batch in self.accumulator.batches()])
        self.accumulator.flushing += 1

    def look(self) -> None:
        """What happens without anybody's doing: time is up, callers go on."""
        for batch in self.accumulator.expire(self.now):
            assert batch.deadline <= self.now
            assert batch.promise.outcome is None, "told twice"
            batch.promise.resolve(GIVEN_UP)
            if not self.accumulator.is_in_flight(batch):
                self.numbers.spoil(batch)
        while self.line and self.accumulator.has_room(self.line[0].size_bytes):
            caller = self.line[0]
            self._leave_line(caller)
            self._let_in(caller.size_bytes, caller.enter)
        for caller in [caller for caller in self.line if caller.until <= self.now]:
            self._leave_line(caller)
        for flush in [flush for flush in self.flushes if all(map(_is_done, flush))]:
            self.flushes.remove(flush)
            self.accumulator.flushing -= 1

    def _leave_line(self, caller: Caller) -> None:
        self.line.remove(caller)
        self.accumulator.waiting_for_room -= 1

    # Who sends

    def learn_identity(self) -> None:
        epoch = self._epochs.pop(0) if len(self._epochs) > 1 else self._epochs[0]
        self._ids += 1
        self.accumulator.identity = Identity(self._ids, epoch)

    def send(self, connects: Callable[[], Connects]) -> set[TopicPartition]:
        """One request to each leader that can take one. Where something is due and no leader is known."""
        leaderless: set[TopicPartition] = set()
        requests: defaultdict[int, list[PendingBatch]] = defaultdict(list)
        for queue in [] if self.accumulator.needs_identity else self.accumulator.due(self.now):
            node = self.known.get(queue.place)
            if node is None:
                leaderless.add(queue.place)
            elif self._can_send(node) and not (queue.in_flight and queue.node != node):
                requests[node].append(self._take(queue))
                queue.node = node
        for node, batches in requests.items():
            how = Connects.AT_ONCE if self.leaders.in_flight(node) else connects()
            if how is Connects.NEVER:
                self._return(batches)
            else:
                self._connecting[node] = batches
                if how is Connects.AT_ONCE:
                    self.connected(node)
        return leaderless

    def _can_send(self, node: int) -> bool:
        is_connecting = node in self._connecting
        return not is_connecting and self.leaders.in_flight(node) < self._config.max_in_flight_requests_per_connection

    def connected(self, node: int) -> bool:
        """What waited for the connection leaves, but for those whose time is up. Whether somebody had waited."""
        batches = self._connecting.pop(node, [])
        sent: dict[TopicPartition, tuple[PendingBatch, bytes]] = {}
        for batch in batches:
            if batch.promise.outcome is None:
                sent[batch.place] = batch, self._sealed(batch)
            elif self.accumulator.is_in_flight(batch):
                self.give_up(batch)
        if sent:
            self.leaders.send(node, sent)
        return bool(batches)

    def _take(self, queue: PartitionQueue) -> PendingBatch:
        self._assert_may_leave(queue)
        is_alone = not queue.in_flight
        batch = self.accumulator.take(queue)
        if self._config.enable_idempotence:
            if self.numbers.leaves(batch, self.accumulator.identity_of(batch), is_alone):
                self.proven.discard(batch.place)
        else:
            assert batch.sequence is None
        return batch

    def _assert_may_leave(self, queue: PartitionQueue) -> None:
        batch, *behind = queue.waiting
        assert not queue.in_flight or queue.place in self.proven, "something is in flight, and may come back"
        assert batch.deadline > self.now
        if batch.attempts:
            assert self.now > self._came_back[batch], "without a pause"
        else:
            assert all(one.attempts == 1 for one in queue.in_flight), "behind what is sent again"
            assert behind or self.wants_to_leave(batch), "too early"

    def wants_to_leave(self, batch: PendingBatch) -> bool:
        """The last of its partition, which was never sent. That of a table lingers whatever its size."""
        is_full = batch not in self._made and batch.size_bytes >= self._config.batch_size
        is_half = len(batch.order) > 1
        has_lingered = self.now >= batch.created + self._config.linger_ms / 1000
        return is_full or is_half or has_lingered or bool(self.line or self.flushes)

    def _sealed(self, batch: PendingBatch) -> bytes:
        return bytes(batch.seal(codecs.NONE, None, *self.accumulator.identity_of(batch)))

    # What comes back

    def hear(self, node: int) -> bool:
        """Whether there was an answer."""
        answers = self.leaders.hear(node)
        for batch, answer in answers:
            if self.accumulator.is_in_flight(batch):
                self._judge(batch, answer)
        return bool(answers)

    def lose(self, node: int, requests: int) -> None:
        """The connection is cut; the node works on so many requests that are still in it."""
        self._return(self.leaders.cut(node, requests))

    def _judge(self, batch: PendingBatch, answer: Answer) -> None:
        code = answer.code
        if code == ErrorCode.NONE:
            if self._is_first(batch):
                self.proven.add(batch.place)
            self._pauses.succeeded(batch.place)
            batch.promise.resolve(Outcome(answer.base_offset, -1, None))
            self.accumulator.acknowledge(batch)
        elif batch.promise.outcome is not None:
            self.give_up(batch)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._is_first(batch):
                self.numbers.spoil(batch)
            self.accumulator.renumber(batch, self.now, LOST)
            self._comes_back(batch)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self.proven.discard(batch.place)
            self.numbers.spoil(batch)
            self.accumulator.split(batch, None)
        elif code == ErrorCode.MESSAGE_TOO_LARGE:
            self.give_up(batch)
        else:
            assert code in PASSING, code
            self._return([batch])

    def _is_first(self, batch: PendingBatch) -> bool:
        """Of those of its partition that are not settled."""
        others = (one for one in self.accumulator.batches() if one.place == batch.place)
        return min(others, key=lambda one: one.order) is batch

    def _return(self, batches: Sequence[PendingBatch]) -> None:
        """They may or may not be in the log."""
        for batch in batches:
            for place in [place for place in self.known if place[0] == batch.place[0]]:
                del self.known[place]
            if not self.accumulator.is_in_flight(batch):
                continue
            if batch.promise.outcome is None and batch.attempts <= self._config.retries:
                self.accumulator.retry(batch, self.now, LOST)
                self._comes_back(batch)
            else:
                self.give_up(batch)

    def _comes_back(self, batch: PendingBatch) -> None:
        self.proven.discard(batch.place)
        self._came_back[batch] = self.now
        self._pauses.failed(self.accumulator._queues[batch.place], self.now)

    def give_up(self, batch: PendingBatch) -> None:
        self.numbers.spoil(batch)
        self.accumulator.give_up(batch)
        batch.promise.resolve(GIVEN_UP)

    def refuse(self, topic: str) -> None:
        """It is gone, or nobody may write there: what waits is given up, and what is in flight hears of it."""
        for batch in list(self.accumulator.unsent([topic])):
            assert not self.accumulator.is_in_flight(batch)
            self.give_up(batch)

    def close(self) -> None:
        """Callers that wait are told so; everything is given up, wherever it is."""
        for caller in list(self.line):
            self._leave_line(caller)
        for batch in self.accumulator.batches():
            self.give_up(batch)


def _encoded(values: Sequence[bytes]) -> memoryview:
    return memoryview(encode_batch([Record(number, 0, None, value) for number, value in enumerate(values)]))


def _is_done(promise: BatchPromise) -> bool:
    if promise.halves is not None:
        return _is_done(promise.halves[0]) and _is_done(promise.halves[2])
    return promise.outcome is not None
