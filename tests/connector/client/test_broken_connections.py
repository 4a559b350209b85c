"""A connection that breaks takes nothing with it that had come: an answer that stands there is heard."""

import threading
import time

import pytest

from pylog.connector.client.producer import RecordProducer
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.connector.client.fake_kafka import PRODUCE, FakeKafka, Fault

PLACE = ("orders", 0)


@pytest.fixture
def producer(kafka: FakeKafka) -> RecordProducer:
    options = {"linger.ms": 0, "retry.backoff.ms": 1, "request.timeout.ms": 300, "delivery.timeout.ms": 10_000}
    return RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, **options})


def batch(label: int) -> bytes:
    return bytes(encode_batch([Record(0, 0, None, b"%d" % label)]))


def labels(kafka: FakeKafka) -> list[int]:
    return [int(record.value or b"") for batch in kafka.logs[PLACE].batches for record in decode_batch(batch)]


def send_while_busy(kafka: FakeKafka, producer: RecordProducer, hold_up: threading.Event) -> None:
    """Batch 0 is written; 1 to 4 are in flight, each in a request; who hears of 1 holds the sender up."""
    producer.send_batch(*PLACE, batch(0), 1)
    producer.flush(10)
    with kafka.busy:
        producer.send(PLACE[0], b"1", partition=0, on_delivery=lambda *_: hold_up.wait(10))
        for label in (2, 3, 4):
            while len(producer._accumulator._queues[PLACE].in_flight) < label - 1:
                time.sleep(0.001)
            producer.send_batch(*PLACE, batch(label), 1)
        while len(producer._accumulator._queues[PLACE].in_flight) < 4:
            time.sleep(0.001)


def test_answers_before_a_reset_are_heard_though_sending_fails_first(
    kafka: FakeKafka, producer: RecordProducer
) -> None:
    """The broker that comes back knows only the last batch: another copy of those before it would be written."""
    go_on = threading.Event()
    kafka.faults[PRODUCE].extend([Fault.NONE] * 4 + [Fault.RESET])
    with producer:
        send_while_busy(kafka, producer, go_on)
        assert kafka.resets.wait(10)
        kafka.logs[PLACE].sequences.restart()
        producer.send_batch(*PLACE, batch(5), 1)
        go_on.set()
        producer.flush(10)
    assert labels(kafka) == [0, 1, 2, 3, 4, 5]
    assert len(kafka.asked(PRODUCE)) == 6, "nothing was sent again"


def test_a_broker_that_answered_is_not_called_silent_by_a_sender_that_was_busy(
    kafka: FakeKafka, producer: RecordProducer
) -> None:
    go_on = threading.Event()
    with producer:
        send_while_busy(kafka, producer, go_on)
        while len(kafka.asked(PRODUCE)) < 5:
            time.sleep(0.001)
        opened = kafka.connections_opened
        time.sleep(0.4)  # longer than request.timeout.ms
        go_on.set()
        producer.flush(10)
        producer.send_batch(*PLACE, batch(5), 1)
        producer.flush(10)
        assert (labels(kafka), kafka.connections_opened) == ([0, 1, 2, 3, 4, 5], opened)
    assert len(kafka.asked(PRODUCE)) == 6, "nothing was sent again"
