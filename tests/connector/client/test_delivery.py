"""What becomes of a batch: everybody who waits for it hears of it, whenever it is settled."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pylog.connector.client.delivery import BatchPromise, DeliveryFuture, Outcome

WRITTEN = Outcome(7, -1, None)
SECONDS_MAX = 30


def soon() -> float:
    return time.monotonic() + SECONDS_MAX


class SettledMeanwhile(list[threading.Event]):
    """Of a promise: it is resolved at the last moment in which nobody hears of it."""

    def __init__(self, promise: BatchPromise) -> None:
        super().__init__()
        self._promise = promise

    def append(self, waiter: threading.Event) -> None:
        self._promise.resolve(WRITTEN)
        super().append(waiter)


def test_who_begins_to_wait_while_it_is_settled_does_not_wait() -> None:
    promise = BatchPromise("t", 0, 1)
    promise._waiters = SettledMeanwhile(promise)
    began = time.monotonic()
    assert promise.wait(soon())
    assert time.monotonic() - began < SECONDS_MAX / 2


def test_everybody_who_waits_hears_of_it() -> None:
    promise = BatchPromise("t", 0, 1)
    with ThreadPoolExecutor(8) as threads:
        heard = [threads.submit(promise.wait, None) for _ in range(8)]
        while len(promise._waiters) < len(heard):
            time.sleep(0.001)
        promise.resolve(WRITTEN)
        assert all(one.result(SECONDS_MAX) for one in heard)


def test_who_waited_too_short_may_wait_again_and_leaves_nothing_behind() -> None:
    promise = BatchPromise("t", 0, 1)
    for _ in range(3):
        assert not promise.wait(time.monotonic())
    assert not promise._waiters
    promise.resolve(WRITTEN)
    assert promise.wait(time.monotonic())


def test_who_waits_for_a_batch_that_is_cut_in_two_waits_for_its_half() -> None:
    promise = BatchPromise("t", 0, 3)
    records = [DeliveryFuture(promise, index, 0, -1, 1) for index in range(3)]
    with ThreadPoolExecutor(4) as threads:
        offsets = [threads.submit(lambda record=record: record.result(SECONDS_MAX).offset) for record in records]
        whole = threads.submit(promise.wait, soon())
        while len(promise._waiters) < len(offsets) + 1:
            time.sleep(0.001)
        head, tail = promise.split(1)
        tail.resolve(Outcome(20, -1, None))
        assert [offset.result(SECONDS_MAX) for offset in offsets[1:]] == [20, 21]
        assert not whole.done()
        assert not offsets[0].done()
        head.resolve(WRITTEN)
        assert offsets[0].result(SECONDS_MAX) == 7
        assert whole.result(SECONDS_MAX)


def test_a_record_of_which_nothing_is_known_in_time_says_so() -> None:
    with pytest.raises(TimeoutError, match="may still be written"):
        DeliveryFuture(BatchPromise("t", 0, 1), 0, 0, -1, 1).result(0.01)
