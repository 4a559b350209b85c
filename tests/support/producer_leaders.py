"""Leaders of partitions as a producer meets them: they take requests in the order of a connection and know copies by
Kafka's rules, connections are cut, leaders move, and one that restarts remembers a producer's last batch only.

A record is twice in a log only if its leader was asked again about a batch that it had forgotten in a restart, and only
records of that batch and of those behind it. Everything else that is not as it should be is an AssertionError.

Left out: requests of a connection that was cut, and are read later than those of the next one. No producer can tell
what becomes of them. And limits that change: a batch in the log whose copy is too large would be cut in two."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.accumulator import TopicPartition
from pylog.connector.client.pending_batch import PendingBatch
from pylog.storage.batch import check
from pylog.storage.records import decode_batch
from tests.support.idempotent_log import Sequences

Number = tuple[int, int, int]  # producer id, epoch, sequence


class Answer(NamedTuple):
    code: ErrorCode
    base_offset: int = -1


class LogTwin:
    def __init__(self, batch_bytes_max: int) -> None:
        self.values: list[bytes] = []
        self.repeatable: set[bytes] = set()  # what may be there twice
        self._batch_bytes_max = batch_bytes_max
        self._sequences = Sequences()
        self._taken: dict[Number, tuple[int, int]] = {}  # record count, base offset
        self._forgotten: set[Number] = set()

    def produce(self, sealed: bytes) -> Answer:
        if len(sealed) > self._batch_bytes_max:
            return Answer(ErrorCode.MESSAGE_TOO_LARGE)
        header = check(sealed)
        number = header.producer_id, header.producer_epoch, header.base_sequence
        code, base_offset = self._sequences.check(*number, header.record_count)
        known = self._taken.get(number)
        if known is not None and base_offset != known[1]:
            assert number in self._forgotten, f"a copy comes later than a broker remembers: {number}"
            self.repeatable.update(self.values[known[1] :])
        if code or base_offset >= 0:
            return Answer(code, base_offset)
        base_offset = len(self.values)
        self._sequences.took(*number, header.record_count, base_offset)
        for record in decode_batch(sealed):
            assert record.value is not None
            twice = record.value in self.values
            assert not twice or header.producer_id < 0 or record.value in self.repeatable, f"twice: {record.value!r}"
            self.values.append(record.value)
        if header.producer_id >= 0:
            self._taken[number] = header.record_count, base_offset
        return Answer(ErrorCode.NONE, base_offset)

    def restart(self) -> None:
        before = self._remembered()
        self._sequences.restart()
        self._forgotten |= before - self._remembered()

    def _remembered(self) -> set[Number]:
        return {number for number, (count, at) in self._taken.items() if self._sequences.check(*number, count)[1] == at}


class _Request:
    def __init__(self, batches: dict[TopicPartition, tuple[PendingBatch, bytes]]) -> None:
        self.batches = batches
        self.answers: dict[TopicPartition, Answer] | None = None


class Leaders:
    """All of a cluster's nodes, each with one connection to the producer."""

    def __init__(self, places: Sequence[TopicPartition], nodes: int, batch_bytes_max: int) -> None:
        self.logs = {place: LogTwin(batch_bytes_max) for place in places}
        self.nodes = range(nodes)
        self.leader = {place: number % nodes for number, place in enumerate(places)}
        self.trouble: dict[TopicPartition, deque[ErrorCode]] = {place: deque() for place in places}  # of next batches
        self._links: dict[int, deque[_Request]] = {node: deque() for node in self.nodes}

    def in_flight(self, node: int) -> int:
        return len(self._links[node])

    def send(self, node: int, batches: dict[TopicPartition, tuple[PendingBatch, bytes]]) -> None:
        self._links[node].append(_Request(batches))

    def work(self, node: int, requests: int = 1) -> None:
        for request in [request for request in self._links[node] if request.answers is None][:requests]:
            request.answers = {place: self._produce(node, place, sent) for place, (_, sent) in request.batches.items()}

    def _produce(self, node: int, place: TopicPartition, sealed: bytes) -> Answer:
        if self.leader[place] != node:
            return Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        trouble = self.trouble[place].popleft() if self.trouble[place] else ErrorCode.NONE
        if trouble == ErrorCode.NOT_ENOUGH_REPLICAS:
            return Answer(trouble)
        answer = self.logs[place].produce(sealed)
        return answer if answer.code or not trouble else Answer(trouble)

    def hear(self, node: int) -> list[tuple[PendingBatch, Answer]]:
        """The first answer that has come."""
        link = self._links[node]
        if not link or link[0].answers is None:
            return []
        request = link.popleft()
        assert request.answers is not None
        return [(batch, request.answers[place]) for place, (batch, _) in request.batches.items()]

    def cut(self, node: int, requests: int) -> list[PendingBatch]:
        """What was not answered: so many more requests are worked on, of which nobody hears."""
        self.work(node, requests)
        lost = [batch for request in self._links[node] for batch, _ in request.batches.values()]
        self._links[node].clear()
        return lost

    def restart(self, node: int) -> None:
        for place, leader in self.leader.items():
            if leader == node:
                self.logs[place].restart()

    def move(self, place: TopicPartition) -> None:
        self.leader[place] = (self.leader[place] + 1) % len(self.nodes)
