"""What becomes of records that were sent: every batch has one outcome, and whoever asked is told of it once."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from pylog.connector.client.errors import ClientError, MadeBeforeFork

T = TypeVar("T")

_log = logging.getLogger(__name__)
UNKNOWN_OFFSET = -1  # nobody said where: acks=0, or a copy that the broker had already and no longer remembers


class _Process:
    """Which one this is, counted in forks: in a child nobody hears of what its parent sent."""

    forks = 0

    @classmethod
    def forked(cls) -> None:
        cls.forks += 1

    @classmethod
    def check(cls, forks: int) -> None:
        if forks != cls.forks:
            raise MadeBeforeFork


os.register_at_fork(after_in_child=_Process.forked)


class RecordMetadata(NamedTuple):
    """Where a record stands in its log. Sizes are those of its bytes, -1 for null."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int
    serialized_value_size: int


class TableMetadata(NamedTuple):
    """What became of a table: all of its rows are written."""

    topic: str
    row_count: int
    batches: tuple[tuple[int, int, int], ...]  # (partition, first offset or -1, rows), in the order of their answers


OnDelivery = Callable[[RecordMetadata | None, ClientError | None], None]
OnTable = Callable[[TableMetadata | None, ClientError | None], None]


class Outcome(NamedTuple):
    """Of a batch: where it is, or why it is nowhere (then it may still be there, if no answer came)."""

    base_offset: int
    log_append_time_ms: int  # -1: the records keep their own times
    error: ClientError | None


class Listener(Protocol):
    """Is told of each outcome of the batches that it was given to."""

    def resolved(self, promise: "BatchPromise", outcome: Outcome) -> None: ...

    def split(self, promise: "BatchPromise", head: "BatchPromise", head_count: int, tail: "BatchPromise") -> None: ...


class BatchPromise:
    """The outcome of one batch, or, when it had to be cut in two, its halves."""

    __slots__ = (
        "_forks",
        "_is_told",
        "_listeners",
        "_waiters",
        "halves",
        "outcome",
        "partition",
        "record_count",
        "topic",
    )

    def __init__(self, topic: str, partition: int, record_count: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.record_count = record_count
        self.outcome: Outcome | None = None
        self._is_told = False  # to every listener
        self._forks = _Process.forks
        self.halves: tuple[BatchPromise, int, BatchPromise] | None = None
        self._waiters: list[threading.Event] = []  # of who waits: for most batches nobody does
        self._listeners: list[Listener] = []

    @property
    def _is_done(self) -> bool:
        return self._is_told or self.halves is not None

    def add(self, listener: Listener) -> None:
        """Called by whoever holds the batch, before it is resolved."""
        self._listeners.append(listener)

    def resolve(self, outcome: Outcome) -> None:
        """The first outcome counts. Listeners are called in this thread, which holds no lock; who waits goes on behind
        them."""
        if self.outcome is None:
            self.outcome = outcome
            try:
                for listener in self._listeners:
                    listener.resolved(self, outcome)
            finally:
                self._listeners.clear()
                self._is_told = True
                self._wake()

    def split(self, head_count: int) -> "tuple[BatchPromise, BatchPromise]":
        """Two promises in its place, for its first `head_count` records and for the others."""
        head = BatchPromise(self.topic, self.partition, head_count)
        tail = BatchPromise(self.topic, self.partition, self.record_count - head_count)
        self.halves = head, head_count, tail
        for listener in self._listeners:
            listener.split(self, head, head_count, tail)
        self._listeners.clear()
        self._wake()
        return head, tail

    def _wake(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.set()

    def wait(self, deadline: float | None) -> bool:
        """Whether all of it is done; `deadline` is by `time.monotonic`."""
        if not self.wait_here(deadline):
            return False
        return self.halves is None or (self.halves[0].wait(deadline) and self.halves[2].wait(deadline))

    def wait_here(self, deadline: float | None) -> bool:
        """Whether it is done, or was cut in two."""
        if not self._is_done:
            _Process.check(self._forks)
            waiter = threading.Event()
            self._waiters.append(waiter)
            # Looked at again: whoever made it done before the line above has woken nobody.
            if not self._is_done:
                waiter.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            self._waiters.remove(waiter)
        return self._is_done

    def of(self, index: int) -> "tuple[BatchPromise, int]":
        """The promise that has this record, and the record's place in it."""
        if self.halves is None:
            return self, index
        head, head_count, tail = self.halves
        return head.of(index) if index < head_count else tail.of(index - head_count)


class DeliveryFuture:
    """The future of one record: `result` gives its RecordMetadata or raises what kept it from being written."""

    __slots__ = ("_index", "_key_size", "_promise", "_timestamp_ms", "_value_size")

    def __init__(self, promise: BatchPromise, index: int, timestamp_ms: int, key_size: int, value_size: int) -> None:
        self._promise = promise
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size

    def done(self) -> bool:
        return self._promise.of(self._index)[0].outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """TimeoutError if there is no outcome after `timeout` seconds: the record may still be written."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            promise, _ = self._promise.of(self._index)
            if promise.outcome is not None:
                return promise.outcome.error
            if not promise.wait_here(deadline) and promise.outcome is None:
                raise TimeoutError(f"nothing is known of the record after {timeout} s: it may still be written")

    def _metadata(self) -> RecordMetadata:
        promise, index = self._promise.of(self._index)
        outcome = promise.outcome
        assert outcome is not None
        return RecordMetadata(
            promise.topic,
            promise.partition,
            outcome.base_offset + index if outcome.base_offset >= 0 else UNKNOWN_OFFSET,
            outcome.log_append_time_ms if outcome.log_append_time_ms >= 0 else self._timestamp_ms,
            self._key_size,
            self._value_size,
        )


class Callback:
    """Tells a function what became of one record."""

    __slots__ = ("_function", "_future")

    def __init__(self, future: DeliveryFuture, function: OnDelivery) -> None:
        self._future = future
        self._function = function

    def resolved(self, promise: BatchPromise, outcome: Outcome) -> None:
        _call(self._function, None if outcome.error else self._future._metadata(), outcome.error)

    def split(self, promise: BatchPromise, head: BatchPromise, head_count: int, tail: BatchPromise) -> None:
        self._future._promise.of(self._future._index)[0].add(self)


class TableFuture:
    """The future of a table: done when the last of its batches is. The first error is the table's."""

    def __init__(self, topic: str, row_count: int, on_delivery: OnTable | None = None) -> None:
        self._topic = topic
        self._row_count = row_count
        self._on_delivery = on_delivery
        self._pending = 1  # one for whoever still adds batches
        self._written: list[tuple[int, int, int]] = []
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._forks = _Process.forks
        self.error: ClientError | None = None

    def expect(self, promise: BatchPromise) -> None:
        with self._lock:
            self._pending += 1
        promise.add(self)

    def complete(self, error: ClientError | None = None) -> None:
        """No batch is added any more: all are, or `error` kept the others from being."""
        self._count_down(error)

    def resolved(self, promise: BatchPromise, outcome: Outcome) -> None:
        if outcome.error is None:
            self._written.append((promise.partition, outcome.base_offset, promise.record_count))
        self._count_down(outcome.error)

    def split(self, promise: BatchPromise, head: BatchPromise, head_count: int, tail: BatchPromise) -> None:
        self.expect(head)
        self.expect(tail)
        self._count_down(None)

    def _count_down(self, error: ClientError | None) -> None:
        with self._lock:
            self.error = self.error or error
            self._pending -= 1
            if self._pending:
                return
        self._done.set()
        if self._on_delivery is not None:
            _call(self._on_delivery, None if self.error else self._metadata(), self.error)

    def _metadata(self) -> TableMetadata:
        return TableMetadata(self._topic, self._row_count, tuple(self._written))

    def done(self) -> bool:
        return self._done.is_set()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        if not self._done.is_set():
            _Process.check(self._forks)
        if not self._done.wait(timeout):
            raise TimeoutError(f"nothing is known of the table after {timeout} s: its rows may still be written")
        return self.error

    def result(self, timeout: float | None = None) -> TableMetadata:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()


def _call(
    function: Callable[[T | None, ClientError | None], None], metadata: T | None, error: ClientError | None
) -> None:
    """A function of a caller's: whatever it raises, the next one is called."""
    try:
        function(metadata, error)
    except BaseException:  # also what ends a thread, or a task of asyncio's: others wait for theirs
        _log.exception("a callback failed, which was told of %s", error or metadata)
