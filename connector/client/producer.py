"""Records to topics: partitioned, gathered into batches, sent in the background, each with a future.

Safe for threads. A record that `send` took is written at least once, or its future says why not; with idempotence, the
default, exactly once and in order within its partition, for as long as the producer lives.
"""

import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pylog.connector.client.accumulator import Accumulator, MadeBatch
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ROUND_ROBIN, ClientConfig, Role
from pylog.connector.client.config_types import INT64_MAX
from pylog.connector.client.delivery import Callback, DeliveryFuture, OnDelivery, TableFuture
from pylog.connector.client.errands import within
from pylog.connector.client.errors import (
    BufferFull,
    NoMetadata,
    ProducerClosed,
    RecordTooLarge,
    UnknownPartition,
)
from pylog.connector.client.partitions import PartitionChooser
from pylog.connector.client.pending_batch import record_bytes_max
from pylog.connector.client.sender import Sender
from pylog.storage.batch import HEADER_BYTES, Buffer, read_prefix

_LAST_WORD_SECONDS = 0.5  # for an error that comes when the time is up, and says more than that it is
Serializer = Callable[[Any], bytes | None]
Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]


class RecordProducer:
    """`config` has Kafka's names: {"bootstrap.servers": "…", "linger.ms": 5}; docs/producer.md lists them."""

    def __init__(
        self,
        config: Mapping[str, Any] | ClientConfig,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
    ) -> None:
        if not isinstance(config, ClientConfig):
            config = ClientConfig.parse({name: _text(value) for name, value in config.items()}, Role.PRODUCER)
        self._config = config
        self._cluster = Cluster.of(config)
        self._key_serializer = _checked(key_serializer)
        self._value_serializer = _checked(value_serializer)
        self._chooser = PartitionChooser(
            round_robin=config.partitioner_class == ROUND_ROBIN,
            ignore_keys=config.partitioner_ignore_keys,
            batch_size_bytes=config.batch_size,
        )
        self._limits = (("max.request.size", config.max_request_size), ("buffer.memory", config.buffer_memory))
        self._accumulator = Accumulator(config)
        self._sender = Sender(self._cluster, self._accumulator)
        self._counts: dict[str, tuple[int, float]] = {}  # by topic: its partitions, and until when that is believed
        self._line: deque[object] = deque()  # of callers that wait for room
        self._is_closed = False
        self._sender.start()

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> DeliveryFuture:
        """Returns when the record has its place in a batch: it is sent in the background.

        Keys and values are bytes, text or None, unless there are serializers. `on_delivery` is called with the record's
        metadata or an error, by the thread that sends: it must not wait. Waits for `max.block.ms` at most, for
        metadata and for room."""
        started = time.monotonic()
        key_bytes, value_bytes = self._key_serializer(key), self._value_serializer(value)
        named = _headers(headers)
        size_bytes = record_bytes_max(key_bytes, value_bytes, named)
        partition = self._partition(topic, key_bytes, partition, size_bytes, started)
        for option, limit in self._limits:
            if size_bytes > limit:
                raise RecordTooLarge(topic, partition, size_bytes, option, limit)
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        elif not 0 <= (timestamp_ms := operator.index(timestamp_ms)) <= INT64_MAX:
            raise ValueError(f"timestamp_ms is {timestamp_ms}: a record's time is in milliseconds since 1970")
        with self._sender.lock:
            self._make_room(size_bytes, started)
            batch, index, wants_look = self._accumulator.append(
                (topic, partition), timestamp_ms, key_bytes, value_bytes, named, time.monotonic()
            )
            sizes = (-1 if key_bytes is None else len(key_bytes), -1 if value_bytes is None else len(value_bytes))
            future = DeliveryFuture(batch.promise, index, timestamp_ms, *sizes)
            if on_delivery is not None:
                batch.promise.add(Callback(future, on_delivery))
            if wants_look:
                self._sender.wake()
        return future

    def send_batch(self, topic: str, partition: int, records: Buffer, record_count: int) -> TableFuture:
        """One whole record batch that somebody has made. Its buffer is the producer's from now on."""
        view = memoryview(records).cast("B")
        if len(view) < HEADER_BYTES or read_prefix(view)[1] != len(view):
            raise ValueError(f"{len(view)} bytes for {topic}-{partition} are not one record batch")
        partition = self._partition(topic, None, partition, len(view), time.monotonic())
        self._check_size(topic, partition, len(view))
        future = TableFuture(topic, record_count)
        writable = memoryview(bytearray(view)) if view.readonly else view
        self._add(topic, [(partition, writable, record_count)], future)
        future.complete()
        return future

    def partitions_for(self, topic: str) -> list[int]:
        """Its partitions; a topic that is missing is made, where the broker does so."""
        return sorted(self._leaders(topic, time.monotonic()))

    def flush(self, timeout: float | None = None) -> None:
        """Returns when everything that was sent before has an outcome, which its futures have and its callbacks have
        heard. TimeoutError after so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._sender.is_telling:
            raise RuntimeError("a callback cannot flush: what it would wait for comes behind it")
        if self._sender.is_orphan:
            self._check_open()
        with self._sender.lock:
            pending = self._sender.unheard()
            self._accumulator.flushing += 1
            self._sender.wake()
        try:
            for batch in pending:
                if not batch.promise.wait(deadline):
                    raise TimeoutError(f"not everything was written within {timeout} s: it is still being sent")
        finally:
            with self._sender.lock:
                self._accumulator.flushing -= 1

    def close(self, timeout: float | None = None) -> None:
        """Flush for so many seconds at most, give up what is left then, and end. Again is harmless."""
        with self._sender.lock:
            was_closed, self._is_closed = self._is_closed, True
            self._sender.changed.notify_all()
        if was_closed or self._sender.is_orphan:  # what it holds is its parent's to send
            return
        try:
            if timeout != 0 and not self._sender.is_telling:
                self.flush(timeout)
        except TimeoutError:
            pass
        finally:
            self._sender.stop()
            self._sender.give_up_all(ProducerClosed())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close(None if kind is None else 0)

    # How a record gets its place

    def _partition_count(self, topic: str, started: float, beyond: int = -1) -> int:
        """Believed for `metadata.max.age.ms`, also while no leader is known: records are taken while brokers restart.
        Asked for again when it is not `beyond` a partition that somebody names, for some may have been added."""
        if self._sender.is_orphan:
            self._check_open()
        count, until = self._counts.get(topic, (0, 0.0))
        if time.monotonic() >= until:
            count = len(self._leaders(topic, started))
        if count <= beyond:
            self._cluster.expire(topic)
            count = len(self._leaders(topic, started))
        return count

    def _leaders(self, topic: str, started: float) -> dict[int, int]:
        """Waits for `max.block.ms` since then, though each broker that is asked may take its own time to answer."""
        left_ms = max(0, self._config.max_block_ms - int((time.monotonic() - started) * 1000))
        seconds = left_ms / 1000 + _LAST_WORD_SECONDS
        leaders = within(seconds, lambda: self._cluster.topic(topic, create=True, timeout_ms=left_ms).leaders)
        if leaders is None:
            raise NoMetadata(topic, self._config.max_block_ms)
        self._counts[topic] = len(leaders), time.monotonic() + self._config.metadata_max_age_ms / 1000
        return leaders

    def _partition(self, topic: str, key: bytes | None, named: int | None, size_bytes: int, started: float) -> int:
        if named is None:
            return self._chooser.choose(topic, key, size_bytes, self._partition_count(topic, started))
        count = self._partition_count(topic, started, beyond=named)
        if not 0 <= named < count:
            raise UnknownPartition(topic, named, count)
        return named

    def _make_room(self, size_bytes: int, started: float) -> None:
        """With the lock held; it is let go while there is no room. Callers are let in as they came: else small records
        would take what comes free from under a table that waits for more."""
        self._check_open()
        line = self._line
        if self._accumulator.has_room(size_bytes) and (not line or self._sender.is_own_thread):
            return
        if self._sender.is_own_thread:
            raise BufferFull(self._config.buffer_memory, 0)  # or the one thread that makes room would wait for it
        place = object()
        line.append(place)
        self._accumulator.waiting_for_room += 1
        try:
            self._sender.wake()
            deadline = started + self._config.max_block_ms / 1000
            while line[0] is not place or not self._accumulator.has_room(size_bytes):
                left = deadline - time.monotonic()
                if left <= 0 or not self._sender.changed.wait(min(left, threading.TIMEOUT_MAX)):
                    oldest = self._sender.what_waits_longest()
                    raise BufferFull(self._config.buffer_memory, self._config.max_block_ms, oldest)
                self._check_open()
        finally:
            line.remove(place)
            self._accumulator.waiting_for_room -= 1
            self._sender.changed.notify_all()  # there may be room for the next one, too

    def _check_size(self, topic: str, partition: int, size_bytes: int) -> None:
        if size_bytes > self._config.max_request_size:
            raise RecordTooLarge(topic, partition, size_bytes, "max.request.size", self._config.max_request_size)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProducerClosed
        if self._sender.fatal is not None:
            raise self._sender.fatal

    def _add(self, topic: str, made: Sequence[MadeBatch], future: TableFuture) -> None:
        """Whole batches, which share their memory: there is room for all of them first."""
        for partition, records, record_count in made:
            if record_count == 1:  # several were put together so that they fit; compression may have made them larger
                self._check_size(topic, partition, len(records))
        with self._sender.lock:
            self._make_room(sum(len(records) for _, records, _ in made), time.monotonic())
            for batch in self._accumulator.add(topic, made, time.monotonic()):
                future.expect(batch.promise)
            self._sender.wake()


def _text(value: Any) -> str:
    """Of an option, as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked(serializer: Serializer | None) -> Serializer:
    return _as_bytes if serializer is None else lambda value: _as_bytes(serializer(value))


def _as_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"a key or value must be bytes, text or None, not {type(value).__name__}: give the producer a key_serializer "
        "or value_serializer that makes bytes of it"
    )


def _headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    named = [(name, _as_bytes(value)) for name, value in pairs]
    for name, _ in named:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be text, not {type(name).__name__}")
    return named
