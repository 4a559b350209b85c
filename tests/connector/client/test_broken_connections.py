"""A connection that breaks takes nothing with it that had come: an answer that stands there is heard."""

import os
import select
import threading
import time
from itertools import count

import pytest

from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.wire import Buffer, MalformedFrame
from pylog.connector.client.errors import DeliveryFailed
from pylog.connector.client.producer import RecordProducer
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.connector.client.fake_kafka import PRODUCE, FakeKafka, Fault

PLACE = ("orders", 0)
REQUEST_TIMEOUT_MS = 1000


@pytest.fixture
def producer(kafka: FakeKafka) -> RecordProducer:
    options = {
        "linger.ms": 0,
        "retry.backoff.ms": 1,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "delivery.timeout.ms": 10_000,
    }
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
        time.sleep(1.2 * REQUEST_TIMEOUT_MS / 1000)
        go_on.set()
        producer.flush(10)
        producer.send_batch(*PLACE, batch(5), 1)
        producer.flush(10)
        assert (labels(kafka), kafka.connections_opened) == ([0, 1, 2, 3, 4, 5], opened)
    assert len(kafka.asked(PRODUCE)) == 6, "nothing was sent again"


def test_behind_a_bad_answer_none_is_taken_for_that_of_another_request(
    kafka: FakeKafka, producer: RecordProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of three answers cannot be read, the others stand behind it: nobody said that batch 2 is written."""
    go_on, calls, decode = threading.Event(), count(), produce.decode_response

    def decode_but_the_third(body: Buffer, version: int) -> list[produce.ProducedPartition]:
        if next(calls) == 2:
            raise MalformedFrame("no answer to Produce")
        return decode(body, version)

    monkeypatch.setattr(produce, "decode_response", decode_but_the_third)
    with producer:
        send_while_busy(kafka, producer, go_on)
        while len(kafka.asked(PRODUCE)) < 5:
            time.sleep(0.001)
        waiting = [batch.promise for batch in producer._accumulator._queues[PLACE].in_flight][-3:]
        go_on.set()
        producer.flush(10)
    errors = [promise.outcome.error for promise in waiting if promise.outcome is not None]
    assert [isinstance(error, DeliveryFailed) for error in errors] == [True] * 3


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="other selectors forget what is closed by themselves")
def test_a_connection_that_broke_is_forgotten_though_another_process_has_a_copy(
    kafka: FakeKafka, producer: RecordProducer
) -> None:
    """As a process has it that was forked while it was opened: epoll would tell of it for ever."""
    with producer:
        producer.send(PLACE[0], b"0", partition=0).result(10)
        [link] = producer._sender._links.values()
        copy = os.dup(link.fileno)
        try:
            kafka.stop(0)
            kafka.start(0)
            producer.send(PLACE[0], b"1", partition=0).result(10)
            epoll = producer._sender._selector._selector  # type: ignore[attr-defined]
            ends = time.monotonic() + 5
            while (found := epoll.poll(0)) and time.monotonic() < ends:
                time.sleep(0.01)
            assert found == []
        finally:
            os.close(copy)
