"""How a batch ends: what is said of it, and that everybody hears of it before whoever flushes goes on."""

import threading
from collections.abc import Iterable, Sequence

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.delivery import UNKNOWN_OFFSET, Outcome
from pylog.connector.client.errors import ClientError, DeliveryFailed, KafkaError, Retriable
from pylog.connector.client.pending_batch import PendingBatch

Told = tuple[PendingBatch, Outcome]


class Teller:
    """`changed` is notified behind everything that is told; its lock guards `untold`."""

    def __init__(self, changed: threading.Condition) -> None:
        self.untold: set[PendingBatch] = set()  # decided, but not everybody has heard of it yet
        self._changed = changed
        self._tellers: set[int] = set()  # threads

    @property
    def is_telling(self) -> bool:
        """Whether this thread tells, so that it is a callback that asks."""
        return threading.get_ident() in self._tellers

    def decided(self, told: Iterable[Told]) -> None:
        """With the lock held, before it is let go: who flushes then waits until these are told, too."""
        self.untold.update(batch for batch, _ in told)

    def tell(self, told: Sequence[Told]) -> None:
        """Without the lock: callbacks may send."""
        if not told:
            return
        thread = threading.get_ident()
        is_first = thread not in self._tellers  # a callback may close the producer, which tells of others
        self._tellers.add(thread)
        left = iter(told)
        try:
            for batch, outcome in left:
                batch.promise.resolve(outcome)
        finally:
            for batch, outcome in left:  # Ctrl-C came between: nobody else will tell of these
                batch.promise.resolve(outcome)
            if is_first:
                self._tellers.discard(thread)
            with self._changed:
                self.untold.difference_update(batch for batch, _ in told)
                self._changed.notify_all()


def failure(batch: PendingBatch, error: ClientError, retries: int | None = None) -> Outcome:
    cause = str(error)
    if isinstance(error, Retriable) and retries is not None:
        cause = f"not acknowledged after retries={retries}: {error}"
    elif isinstance(error, KafkaError) and error.code == ErrorCode.MESSAGE_TOO_LARGE:
        cause += (
            f". A batch of {batch.size_bytes} bytes is too large for the broker: raise max.message.bytes of the topic "
            "(or message.max.bytes of the broker)"
        )
    return failed(batch, cause, error)


def failed(batch: PendingBatch, cause: str, error: ClientError | None) -> Outcome:
    failed = DeliveryFailed(*batch.place, batch.record_count, cause)
    failed.__cause__ = error
    return Outcome(UNKNOWN_OFFSET, -1, failed)
