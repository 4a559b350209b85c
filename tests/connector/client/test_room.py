"""Who sends waits for room in buffer.memory: in turn, for max.block.ms, and is told for whom there was none."""

import threading
import time
from collections.abc import Callable

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.errors import BufferFull, DeliveryFailed, RecordTooLarge
from pylog.connector.client.producer import RecordProducer
from pylog.storage.records import decode_batch
from tests.connector.client.fake_kafka import PRODUCE, FakeKafka, Fault

Produce = Callable[..., RecordProducer]


def values(kafka: FakeKafka) -> list[bytes]:
    found = [record.value for batch in kafka.logs["orders", 0].batches for record in decode_batch(batch)]
    return [value.strip() for value in found if value is not None]


def test_sending_waits_for_room_and_gives_up_after_max_block_ms(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(buffer_memory=1000, max_block_ms=100, request_timeout_ms=1000)
    kafka.faults[PRODUCE].append(Fault.SILENCE)
    producer.send("orders", b"x" * 600, partition=0)
    says = r"no room in buffer\.memory=1000 within max\.block\.ms=100.*waits longest, for 0\.\d s, is for orders-0$"
    with pytest.raises(BufferFull, match=says):
        producer.send("orders", b"x" * 600, partition=0)
    with pytest.raises(RecordTooLarge, match=r"buffer\.memory=1000"):
        producer.send("orders", b"x" * 2000)


def test_whoever_finds_no_room_is_told_why_the_oldest_does_not_leave(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(buffer_memory=1000, max_block_ms=300, retry_backoff_max_ms=5)
    kafka.faults[PRODUCE].extend([ErrorCode.KAFKA_STORAGE_ERROR] * 10_000)
    producer.send("orders", b"x" * 600, partition=1)
    with pytest.raises(BufferFull, match=r"is for orders-1: writing to orders-1: .*KAFKA_STORAGE_ERROR"):
        producer.send("orders", b"x" * 600, partition=0)
    kafka.faults[PRODUCE].clear()


def test_sending_goes_on_when_there_is_room_again(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(buffer_memory=1000, linger_ms=60_000, delivery_timeout_ms=200_000)
    for n in range(30):
        producer.send("orders", b"%d" % n + b" " * 400, partition=0)  # who waits for room is not kept lingering
    producer.flush(10)
    assert values(kafka) == [b"%d" % n for n in range(30)]


def test_small_records_take_no_room_from_under_a_large_one_that_waits(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(buffer_memory=2000)
    producer.send("orders", b"first", partition=0).result(10)

    def send(value: bytes) -> threading.Thread:
        thread = threading.Thread(target=producer.send, args=("orders", value), kwargs={"partition": 0})
        thread.start()
        return thread

    with kafka.busy:
        producer.send("orders", b"second" + b" " * 1200, partition=0)
        large = send(b"large" + b" " * 1200)
        while not producer._accumulator.waiting_for_room:
            time.sleep(0.001)
        small = send(b"small")  # for which there is room
        small.join(0.1)
        assert small.is_alive()
    for thread in (large, small):
        thread.join(10)
    producer.flush(10)
    assert values(kafka) == [b"first", b"second", b"large", b"small"]


def test_there_is_room_when_what_was_given_up_is_no_longer_in_flight(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(buffer_memory=1000, max_block_ms=20_000, request_timeout_ms=300, delivery_timeout_ms=400)
    kafka.faults[PRODUCE] += [Fault.SILENCE, Fault.SILENCE]  # sent again after 300 ms, given up while in flight
    failed = producer.send("orders", b"x" * 600, partition=0)
    began = time.monotonic()
    producer.send("orders", b"y" * 600, partition=0)
    assert isinstance(failed.exception(0), DeliveryFailed)
    assert time.monotonic() - began < 10


def test_waiting_for_room_may_take_for_ever(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(buffer_memory=1000, max_block_ms=(1 << 63) - 1)
    for _ in range(5):
        producer.send("orders", b"x" * 600, partition=0)
    producer.flush(10)
    assert len(values(kafka)) == 5


def test_a_callback_finds_room_past_those_that_wait(kafka: FakeKafka, produce: Produce) -> None:
    """It is called by the thread that makes room: it cannot wait behind them."""
    producer = produce(buffer_memory=3000)
    sent: list[object] = []

    def send_more(*_: object) -> None:
        while not producer._accumulator.waiting_for_room:
            time.sleep(0.001)
        sent.append(producer.send("orders", b"more", partition=0))

    producer.send("orders", b"first", partition=0).result(10)
    with kafka.busy:
        producer.send("orders", b"second", partition=1, on_delivery=send_more)
        producer.send("orders", b"x" * 2000, partition=0)
        waiting = threading.Thread(target=producer.send, args=("orders", b"y" * 2000), kwargs={"partition": 0})
        waiting.start()
        while not producer._accumulator.waiting_for_room:
            time.sleep(0.001)
    waiting.join(10)
    producer.flush(10)
    assert len(sent) == 1
