"""Record batches to the leaders of their partitions, several requests in flight, in order.

At least once: when a connection breaks or an answer says "not now", the batch and everything sent after it for
its partition is sent again in its order, though the broker may have kept the first copy. So records can stand
twice in the log, but none is lost that was acknowledged, and the last copies stand in the order of `send`.

Every batch is in `_unacknowledged`, in the order of `send`, until its answer has come; whatever fails, sending
all of those again is right. Requests that are being filled and requests in flight are only views of it.
"""

import time
from collections import deque
from types import TracebackType
from typing import Self

from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import (
    ClientError,
    ConnectionLost,
    DeliveryFailed,
    KafkaError,
    NotKafka,
    Retriable,
    kafka_error,
)
from pylog.connector.client.retry import backoff_ms
from pylog.storage.batch import HEADER_BYTES, Buffer, read_prefix

_NO_ANSWER = 0  # acks


class _Batch:
    __slots__ = ("deadline", "partition", "record_count", "records", "topic")

    def __init__(self, topic: str, partition: int, records: memoryview, record_count: int, deadline: float) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.record_count = record_count
        self.deadline = deadline

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


class _Request:
    """At most one batch per partition: brokers take no more."""

    __slots__ = ("batches", "size_bytes")

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, _Batch] = {}
        self.size_bytes = 0

    def add(self, batch: _Batch) -> None:
        self.batches[batch.place] = batch
        self.size_bytes += len(batch.records)


class _Link:
    """The connection to one leader, and what is in flight on it."""

    __slots__ = ("connection", "requests")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.requests: deque[_Request] = deque()


class BatchProducer:
    """Used by one thread. After an error that it raised, it sends nothing more and raises that error again."""

    def __init__(self, cluster: Cluster, config: ClientConfig | None = None) -> None:
        self._cluster = cluster
        self._config = config or cluster.config
        self._unacknowledged: dict[_Batch, None] = {}  # an ordered set
        self._unacknowledged_bytes = 0
        self._leaders: dict[TopicPartition, int] = {}  # kept while anything is in flight, or order would be lost
        self._filling: dict[int, _Request] = {}
        self._links: dict[int, _Link] = {}
        self._proven: set[TopicPartition] = set()  # their leader has taken a batch: several may be in flight
        self._refused: set[TopicPartition] = set()  # later answers for these count for nothing
        self._failures = 0
        self._error: ClientError | None = None

    def send(self, topic: str, partition: int, records: Buffer, record_count: int) -> None:
        """One whole record batch. Its buffer belongs to the producer until it is acknowledged: do not change it.

        Returns once the batch has its place in a request; waits while `buffer.memory` is used up."""
        view = memoryview(records).cast("B")
        if len(view) < HEADER_BYTES or read_prefix(view)[1] != len(view):
            raise ValueError(f"{len(view)} bytes for {topic}-{partition} are not one record batch")
        if len(view) > self._config.max_request_size:
            cause = (
                f"a batch of {len(view)} bytes is larger than max.request.size={self._config.max_request_size}: "
                "raise it (and max.message.bytes of the topic), or lower batch.size"
            )
            raise self._fail(DeliveryFailed(topic, partition, record_count, cause))
        while self._unacknowledged and self._unacknowledged_bytes + len(view) > self._config.buffer_memory:
            self._step()
        deadline = time.monotonic() + self._config.delivery_timeout_ms / 1000
        batch = _Batch(topic, partition, view, record_count, deadline)
        self._unacknowledged[batch] = None
        self._unacknowledged_bytes += len(view)
        self._step(batch)

    def flush(self) -> None:
        """Returns when everything that was sent is acknowledged."""
        self._raise_earlier_error()
        while self._unacknowledged:
            self._step()

    def close(self) -> None:
        """Flush, and give the connections back."""
        try:
            if self._error is None:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give up everything that is not acknowledged: it may or may not be written."""
        self._unacknowledged.clear()
        self._unacknowledged_bytes = 0
        self._filling.clear()
        self._drop_links()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # One step forward: place a batch, or else hear an answer. What fails for now is sent again.

    def _step(self, batch: _Batch | None = None) -> None:
        self._raise_earlier_error()
        try:
            try:
                if batch is not None:
                    self._place(batch)
                else:
                    self._hear_or_dispatch()
            except Retriable as error:
                self._recover(error)
        except ClientError as error:
            raise self._fail(error) from error.__cause__

    def _place(self, batch: _Batch) -> None:
        """Into the request that is being filled for its leader; a full one goes out first."""
        leader = self._leader_of(batch)
        filling = self._filling.get(leader)
        if filling is not None and (
            batch.place in filling.batches or filling.size_bytes + len(batch.records) > self._config.max_request_size
        ):
            self._dispatch(leader)
            filling = None
        if filling is None:
            filling = self._filling[leader] = _Request()
        filling.add(batch)

    def _leader_of(self, batch: _Batch) -> int:
        leader = self._leaders.get(batch.place)
        if leader is None:
            left_ms = max(0, int((batch.deadline - time.monotonic()) * 1000))
            self._cluster.topic(batch.topic, create=True, timeout_ms=left_ms)
            leader = self._leaders[batch.place] = self._cluster.leader(batch.topic, batch.partition)
        return leader

    def _hear_or_dispatch(self) -> None:
        for leader in list(self._filling):
            self._dispatch(leader)
        for link in self._links.values():
            if link.requests:
                self._hear(link)
                return

    def _dispatch(self, leader: int) -> None:
        request = self._filling.pop(leader)
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = _Link(self._cluster.connect(leader))
        # The leader of a new topic, or a new leader, may refuse the first batch and take those in flight behind it,
        # which then stand twice in the log. So nothing follows the first until it is taken.
        proven = self._proven.issuperset(request.batches)
        in_flight_max = self._config.max_in_flight_requests_per_connection if proven else 1
        while len(link.requests) >= in_flight_max:
            self._hear(link)
        version = link.connection.version(produce.SPEC)
        partitions = [produce.ProducePartition(*place, batch.records) for place, batch in request.batches.items()]
        partitions.sort(key=lambda partition: partition.topic)  # a topic is named once
        acks = self._config.acks
        body = produce.encode_request(
            produce.ProduceRequest(None, acks, self._config.request_timeout_ms, partitions), version
        )
        link.connection.send_encoded(produce.SPEC, version, body, answered=acks != _NO_ANSWER)
        if acks == _NO_ANSWER:
            for batch in request.batches.values():
                self._acknowledge(batch)
        else:
            link.requests.append(request)

    # Answers

    def _hear(self, link: _Link) -> None:
        """The oldest answer on a link; raises what it holds against a batch, a lasting error first."""
        answer = link.connection.receive()
        request = link.requests.popleft()
        try:
            results = {
                (result.topic, result.partition): result
                for result in produce.decode_response(answer.body, answer.version)
            }
        except MalformedFrame as error:
            link.connection.close()
            raise NotKafka(str(link.connection.address), f"its answer to Produce is malformed: {error}") from None
        passing: KafkaError | None = None
        for place, batch in request.batches.items():
            result = results.get(place)
            if result is None:
                link.connection.close()
                raise NotKafka(str(link.connection.address), f"its answer to Produce leaves out {place[0]}-{place[1]}")
            if result.error_code:
                refusal = kafka_error(result.error_code, f"writing to {place[0]}-{place[1]}", result.error_message)
                if not isinstance(refusal, Retriable):
                    raise DeliveryFailed(*place, batch.record_count, _advice(batch, refusal)) from refusal
                self._refused.add(place)
                passing = refusal
            elif place not in self._refused:
                self._proven.add(place)
                self._acknowledge(batch)
        if passing is not None:
            raise passing

    def _acknowledge(self, batch: _Batch) -> None:
        del self._unacknowledged[batch]
        self._unacknowledged_bytes -= len(batch.records)
        self._failures = 0

    # What fails for now

    def _recover(self, error: Retriable) -> None:
        """Hear what else was decided, look for the leaders anew, and send again all that is not acknowledged."""
        while True:
            for link in self._links.values():
                self._hear_out(link)
            self._drop_links()
            self._filling.clear()
            self._proven.clear()
            self._refused.clear()
            self._leaders.clear()
            self._pause(error)
            self._cluster.expire(*{batch.topic for batch in self._unacknowledged})
            try:
                for batch in list(self._unacknowledged):  # a copy: answers are heard while requests go out
                    self._place(batch)
                return
            except Retriable as again:
                error = again

    def _hear_out(self, link: _Link) -> None:
        while link.requests:
            try:
                self._hear(link)
            except ConnectionLost:
                link.requests.clear()
            except Retriable:
                continue

    def _pause(self, error: Retriable) -> None:
        """Before the next attempt; the oldest batch decides whether there is one."""
        oldest = next(iter(self._unacknowledged), None)
        if oldest is None:
            return
        self._failures += 1
        left_ms = (oldest.deadline - time.monotonic()) * 1000
        if left_ms <= 0:
            cause = f"not acknowledged within delivery.timeout.ms={self._config.delivery_timeout_ms}: {error}"
            raise DeliveryFailed(*oldest.place, oldest.record_count, cause) from error
        if self._failures > self._config.retries:
            cause = f"not acknowledged after retries={self._config.retries}: {error}"
            raise DeliveryFailed(*oldest.place, oldest.record_count, cause) from error
        time.sleep(min(left_ms, backoff_ms(self._config, self._failures)) / 1000)

    def _fail(self, error: ClientError) -> ClientError:
        self._error = error
        self.abandon()
        return error

    def _raise_earlier_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _drop_links(self) -> None:
        for link in self._links.values():
            self._cluster.pool.give(link.connection)
        self._links.clear()


def _advice(batch: _Batch, error: KafkaError) -> str:
    if error.code == ErrorCode.MESSAGE_TOO_LARGE:
        return (
            f"{error}. A batch of {len(batch.records)} bytes is too large for the broker: "
            "raise max.message.bytes of the topic (or message.max.bytes of the broker), or lower batch.size"
        )
    return str(error)
