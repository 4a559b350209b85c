"""Who flushes goes on when everybody has heard of everything that was sent before."""

import sys
import threading
import time

import pytest

from pylog.connector.client.errors import ClientError
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


def test_a_callback_that_ends_its_thread_keeps_nobody_from_being_told(producer: RecordProducer) -> None:
    with producer:
        first = producer.send("orders", "v", partition=0, on_delivery=lambda *_: sys.exit())
        second = producer.send("orders", "v", partition=1)
        producer.flush(10)
        assert first.done()
        assert second.done()


def test_who_waits_for_a_record_hears_of_it_though_a_callback_takes_longer(producer: RecordProducer) -> None:
    go_on = threading.Event()
    with producer:
        future = producer.send("orders", "v", partition=0, on_delivery=lambda *_: go_on.wait(10))
        waiting = threading.Thread(target=producer.flush)
        waiting.start()
        assert future.result(0.5).offset == 0
        go_on.set()
        waiting.join()
