"""Who flushes goes on when everybody has heard of everything that was sent before."""

import asyncio
import threading
import time
from itertools import count
from typing import Any

import pytest

from pylog.connector.client.delivery import BatchPromise, Outcome
from pylog.connector.client.errors import ClientError
from pylog.connector.client.outcomes import Teller
from pylog.connector.client.pending_batch import PendingBatch
from pylog.connector.client.producer import RecordProducer
from tests.connector.client.fake_kafka import FakeKafka


@pytest.fixture
def producer(kafka: FakeKafka) -> RecordProducer:
    return RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1000, "retry.backoff.ms": 1})


def test_flushing_waits_for_callbacks(producer: RecordProducer) -> None:
    heard: list[int] = []

    def hear(number: int) -> None:
        time.sleep(0.02)
        heard.append(number)

    with producer:
        for number in range(5):
            producer.send("orders", "v", partition=0, on_delivery=lambda _, error, number=number: hear(number))
        producer.flush(10)
        assert heard == list(range(5))


def test_flushing_waits_for_what_is_decided_and_not_told(producer: RecordProducer) -> None:
    """Two batches that one answer acknowledges: the callback of the first holds up what is told of the second."""
    told, go_on = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        told.set()
        go_on.wait(10)

    with producer:
        producer.send("orders", "v", partition=0, on_delivery=wait)
        later = producer.send("orders", "v", partition=1)
        flushing = threading.Thread(target=producer.flush, args=(10,))
        flushing.start()
        assert told.wait(10)
        with pytest.raises(TimeoutError):
            producer.flush(0.05)
        go_on.set()
        producer.flush(10)
        assert later.done()
        flushing.join()


def test_a_callback_is_told_that_it_cannot_flush_whichever_thread_calls_it(
    kafka: FakeKafka, producer: RecordProducer
) -> None:
    refused: list[type[BaseException]] = []

    def flush(metadata: object, error: ClientError | None) -> None:
        with pytest.raises(RuntimeError) as caught:
            producer.flush(1)
        refused.append(caught.type)

    try:
        producer.send("orders", "v", partition=0, on_delivery=flush)
        producer.flush(10)  # told by the thread that sends
        kafka.stop(0)
        producer.send("orders", "v", partition=0, on_delivery=flush)
    finally:
        producer.close(0)  # told by this one
    assert refused == [RuntimeError, RuntimeError]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, ValueError])
def test_a_callback_that_fails_keeps_nobody_from_being_told(
    producer: RecordProducer, error: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise error

    with producer:
        first = producer.send("orders", "v", partition=0, on_delivery=fail)
        second = producer.send("orders", "v", partition=1)
        producer.flush(10)
        assert first.done()
        assert second.done()
        assert producer.send("orders", "v", partition=2).result(10).partition == 2, "the sender goes on"


def test_what_is_settled_is_told_though_the_sender_fails_behind_it(
    producer: RecordProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, judged = producer._sender._judge, count()

    def judge_one(*arguments: Any) -> Outcome | None:
        if next(judged):
            raise RuntimeError("a fault of ours")
        return judge(*arguments)

    monkeypatch.setattr(producer._sender, "_judge", judge_one)
    with producer:
        futures = [producer.send("orders", "v", partition=partition) for partition in (0, 1)]  # in one request
        producer.flush(10)
        [error] = [error for future in futures if (error := future.exception(10)) is not None]
    assert "a fault of ours" in str(error)


def test_who_is_interrupted_while_telling_tells_the_others_first() -> None:
    """Ctrl-C in the thread that closes the producer, say."""

    class Interrupted:
        def resolved(self, promise: BatchPromise, outcome: Outcome) -> None:
            raise KeyboardInterrupt

        def split(self, promise: BatchPromise, head: BatchPromise, head_count: int, tail: BatchPromise) -> None: ...

    batches = [PendingBatch("orders", partition, 0.0, 0.0, (1,)) for partition in range(3)]
    batches[0].promise.add(Interrupted())
    teller, outcome = Teller(threading.Condition()), Outcome(0, -1, None)
    with pytest.raises(KeyboardInterrupt):
        teller.tell([(batch, outcome) for batch in batches])
    assert [batch.promise.wait(0.0) for batch in batches] == [True] * 3


def test_who_waits_for_a_record_hears_of_it_though_a_callback_takes_longer(producer: RecordProducer) -> None:
    go_on = threading.Event()
    with producer:
        future = producer.send("orders", "v", partition=0, on_delivery=lambda *_: go_on.wait(10))
        waiting = threading.Thread(target=producer.flush)
        waiting.start()
        assert future.result(5).offset == 0
        go_on.set()
        waiting.join()
