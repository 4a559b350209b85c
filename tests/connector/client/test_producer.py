"""The face of the producer: what a record may be, where it goes, and what its caller hears of it."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.delivery import RecordMetadata
from pylog.connector.client.errors import (
    ClientError,
    ConfigError,
    DeliveryFailed,
    ProducerClosed,
    UnknownTopic,
)
from pylog.connector.client.producer import RecordProducer
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.connector.client.fake_kafka import PRODUCE, FakeKafka, Fault

Produce = Callable[..., RecordProducer]


def records(kafka: FakeKafka, partition: int) -> list[Record]:
    return [record for batch in kafka.logs["orders", partition].batches for record in decode_batch(batch)]


# What a record may be


def test_a_record_has_what_it_was_given(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce()
    producer.send("orders", "välue", key=b"k", headers={"a": "1", "b": None}, partition=1, timestamp_ms=1234)
    producer.send("orders", partition=1, timestamp_ms=1233, headers=[("a", b"x"), ("a", b"")])
    producer.flush(10)
    assert records(kafka, 1) == [
        Record(0, 1234, b"k", "välue".encode(), (("a", b"1"), ("b", None))),
        Record(1, 1233, None, None, (("a", b"x"), ("a", b""))),
    ]


def test_a_record_without_a_time_has_that_of_now(kafka: FakeKafka, produce: Produce) -> None:
    before = int(time.time() * 1000)
    found = produce().send("orders", "v").result(10)
    assert before <= found.timestamp_ms <= time.time() * 1000


def test_serializers_make_bytes_of_anything(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(value_serializer=lambda value: json.dumps(value).encode(), key_serializer=lambda n: b"%d" % n)
    producer.send("orders", {"a": 1}, key=7, partition=0)
    producer.flush(10)
    assert [(record.key, record.value) for record in records(kafka, 0)] == [(b"7", b'{"a": 1}')]


def test_text_that_a_serializer_makes_is_written_as_utf_8(kafka: FakeKafka, produce: Produce) -> None:
    produce(value_serializer=str).send("orders", 5, partition=0).result(10)
    assert [record.value for record in records(kafka, 0)] == [b"5"]


def test_without_a_serializer_an_object_is_refused_with_the_words_that_help(produce: Produce) -> None:
    with pytest.raises(TypeError, match="not dict: give the producer a key_serializer or value_serializer"):
        produce().send("orders", {"a": 1})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_asked(kafka: FakeKafka, produce: Produce, codec: str) -> None:
    producer = produce(compression_type=codec, linger_ms=1000)
    for n in range(50):
        producer.send("orders", b"x" * 100 + b"%d" % n, partition=0)
    producer.flush(10)
    assert [record.value for record in records(kafka, 0)] == [b"x" * 100 + b"%d" % n for n in range(50)]
    (batch,) = kafka.logs["orders", 0].batches
    assert (len(batch) < 3000) == (codec != "none")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        pytest.param({"timestamp_ms": -1}, ValueError, "milliseconds since 1970", id="before 1970"),
        pytest.param({"timestamp_ms": 1 << 63}, ValueError, "milliseconds since 1970", id="too far ahead"),
        pytest.param({"timestamp_ms": 1.5e12}, TypeError, "float", id="a fraction"),
        pytest.param({"headers": {b"a": b"1"}}, TypeError, "name of a header must be text, not bytes", id="header"),
        pytest.param({"headers": {"\udc80": b"1"}}, ValueError, "surrogates not allowed", id="not UTF-8"),
    ],
)
def test_what_cannot_be_written_is_refused_and_the_next_record_is_written(
    produce: Produce, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    producer = produce()
    assert producer.send("orders", "v", partition=0, timestamp_ms=5).result(10).timestamp_ms == 5
    with pytest.raises(error, match=says):
        producer.send("orders", "v", partition=0, **given)
    assert producer.send("orders", "v", partition=0).result(10).offset == 1


# Where it goes


def test_equal_keys_meet_and_records_without_one_are_spread(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(batch_size=100)
    keyed = {producer.send("orders", "v", key="a").result(10).partition for _ in range(10)}
    assert keyed == {(-1563381124 & 0x7FFFFFFF) % 3}
    assert {producer.send("orders", "v" * 60).result(10).partition for _ in range(10)} == {0, 1, 2}


def test_records_without_a_key_stay_with_a_partition_for_a_batch(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(linger_ms=1000)
    for _ in range(100):
        producer.send("orders", "v")
    producer.flush(10)
    assert sorted(len(records(kafka, partition)) for partition in range(3)) == [0, 0, 100]


def test_round_robin_takes_the_next_partition_whatever_the_key(produce: Produce) -> None:
    producer = produce(partitioner_class="org.apache.kafka.clients.producer.RoundRobinPartitioner")
    found = [producer.send("orders", "v", key="a").result(10).partition for _ in range(6)]
    assert found == [(found[0] + n) % 3 for n in range(6)]


def test_keys_are_ignored_if_asked(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(partitioner_ignore_keys=True, linger_ms=1000)
    for n in range(100):
        producer.send("orders", "v", key=str(n))
    producer.flush(10)
    assert sorted(len(records(kafka, partition)) for partition in range(3)) == [0, 0, 100]


def test_a_partition_that_was_added_is_found(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce()
    assert producer.partitions_for("orders") == [0, 1, 2]
    kafka.add_topic("orders", 5)
    assert producer.send("orders", "v", partition=4).result(10).partition == 4


def test_a_missing_topic_is_told_of_within_max_block_ms(produce: Produce) -> None:
    began = time.monotonic()
    with pytest.raises((UnknownTopic, ClientError), match="missing"):
        produce(max_block_ms=200).send("missing", "v")
    assert time.monotonic() - began < 5


# What its caller hears


def test_futures_and_callbacks_tell_where_records_stand(kafka: FakeKafka, produce: Produce) -> None:
    told: list[tuple[RecordMetadata | None, ClientError | None]] = []
    producer = produce(linger_ms=50)
    futures = [
        producer.send("orders", "vv", key="k" * n, partition=2, timestamp_ms=n, on_delivery=lambda *it: told.append(it))
        for n in range(3)
    ]
    assert not futures[0].done()
    expected = [RecordMetadata("orders", 2, n, n, n, 2) for n in range(3)]
    assert [future.result(10) for future in futures] == expected
    assert futures[0].done()
    producer.flush(10)
    assert told == [(metadata, None) for metadata in expected]


def test_a_failure_is_told_to_futures_and_callbacks_and_a_callback_that_fails_harms_nobody(
    kafka: FakeKafka, produce: Produce
) -> None:
    kafka.faults[PRODUCE].append(ErrorCode.INVALID_RECORD)
    told: list[ClientError | None] = []

    def fail(metadata: RecordMetadata | None, error: ClientError | None) -> None:
        told.append(error)
        raise ZeroDivisionError

    producer = produce()
    failed = producer.send("orders", "v", on_delivery=fail)
    error = failed.exception(10)
    assert isinstance(error, DeliveryFailed)
    producer.flush(10)
    assert told == [error]
    assert producer.send("orders", "v").result(10).offset == 0


def test_a_callback_that_fails_keeps_nobody_in_its_batch_from_being_told(kafka: FakeKafka, produce: Produce) -> None:
    told: list[int] = []

    def tell(metadata: RecordMetadata | None, error: ClientError | None) -> None:
        assert metadata is not None
        told.append(metadata.offset)
        raise ZeroDivisionError

    producer = produce(linger_ms=1000)
    for _ in range(3):
        producer.send("orders", "v", partition=0, on_delivery=tell)
    producer.close()
    assert told == [0, 1, 2]


def test_a_callback_may_send(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce()
    done = threading.Event()
    producer.send(
        "orders", "1", on_delivery=lambda *_: producer.send("orders", "2", on_delivery=lambda *_: done.set()) and None
    )
    assert done.wait(10)


def test_waiting_has_an_end(kafka: FakeKafka, produce: Produce) -> None:
    kafka.faults[PRODUCE].append(Fault.SILENCE)
    producer = produce()
    future = producer.send("orders", "v")
    with pytest.raises(TimeoutError, match="may still be written"):
        future.result(0.02)
    with pytest.raises(TimeoutError, match="still being sent"):
        producer.flush(0.02)


def test_closing_writes_what_is_there_and_refuses_the_rest(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(linger_ms=60_000, delivery_timeout_ms=200_000)
    future = producer.send("orders", "v", partition=0)
    producer.close()
    assert future.result(0).offset == 0
    with pytest.raises(ProducerClosed):
        producer.send("orders", "v")
    producer.close()


def test_closing_with_a_timeout_gives_up_what_is_left(kafka: FakeKafka, produce: Produce) -> None:
    kafka.faults[PRODUCE].append(Fault.SILENCE)
    producer = produce()
    future = producer.send("orders", "v")
    began = time.monotonic()
    producer.close(0.1)
    assert time.monotonic() - began < 5
    with pytest.raises(DeliveryFailed, match="the producer is closed"):
        future.result(0)


def test_a_with_block_flushes_unless_it_fails(kafka: FakeKafka, produce: Produce) -> None:
    with produce(linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        producer.send("orders", "v", partition=0)
    assert len(records(kafka, 0)) == 1
    failing = produce(linger_ms=60_000, delivery_timeout_ms=200_000)
    with contextlib.suppress(ZeroDivisionError), failing:
        failing.send("orders", "v", partition=0)
        raise ZeroDivisionError
    assert len(records(kafka, 0)) == 1


def test_a_producer_leaves_no_thread_behind(produce: Produce) -> None:
    producer = produce()
    producer.send("orders", "v")
    producer.close()
    assert not producer._sender._thread.is_alive()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({"group_id": "g"}, "an option of a consumer", id="a consumer's"),
        pytest.param({"batch_sise": 5}, "did you mean batch.size?", id="a slip"),
        pytest.param({"acks": "1", "enable_idempotence": True}, "cannot be true where acks is '1'", id="acks"),
        pytest.param({"retries": 0, "enable_idempotence": True}, "cannot be true where retries is '0'", id="retries"),
        pytest.param(
            {"max_in_flight_requests_per_connection": 6, "enable_idempotence": True}, "at most 5", id="in flight"
        ),
        pytest.param({"delivery_timeout_ms": 1000}, r"at least linger\.ms plus request\.timeout\.ms, 30000", id="time"),
        pytest.param({"partitioner_class": "x"}, "must be one of default, roundrobin", id="partitioner"),
    ],
)
def test_options_are_checked_as_kafka_checks_them(produce: Produce, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        produce(**options)


@pytest.mark.parametrize(
    "options", [{"acks": 1}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}], ids=str
)
def test_idempotence_is_off_where_other_options_are_against_it(produce: Produce, options: dict[str, Any]) -> None:
    assert produce()._config.enable_idempotence
    assert not produce(**options)._config.enable_idempotence


def test_records_are_taken_while_the_broker_restarts(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(max_block_ms=50)
    producer.send("orders", b"0", partition=0).result(10)
    kafka.stop(0)
    sent = []
    deadline = time.monotonic() + 0.3  # longer than max.block.ms, and than it takes to notice
    while time.monotonic() < deadline:
        sent.append(producer.send("orders", b"1", partition=0))
        time.sleep(0.02)
    kafka.start(0)
    assert [future.result(10).offset for future in sent] == list(range(1, len(sent) + 1))


def one_batch() -> bytes:
    return bytes(encode_batch([Record(0, 0, None, b"v")]))


@pytest.mark.parametrize("pending", [False, True], ids=["at rest", "with a record on its way and the lock held"])
def test_a_forked_process_is_told_that_it_cannot_send(kafka: FakeKafka, produce: Produce, pending: bool) -> None:
    producer = produce()
    future, table = producer.send("orders", "v"), producer.send_batch("orders", 0, one_batch(), 1)
    producer.flush(10)
    reader, writer = os.pipe()
    with contextlib.ExitStack() as stack:
        if pending:
            stack.enter_context(kafka.busy)
            future, table = producer.send("orders", "v"), producer.send_batch("orders", 0, one_batch(), 1)
            stack.enter_context(held_by_another_thread(producer._sender.lock))
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # a child that waits is ended
            for attempt in (
                lambda: producer.send("orders", "v"),
                lambda: producer.send("not asked for yet", "v"),
                producer.flush,
                producer.close,
                future.result,
                table.result,
            ):
                try:
                    attempt()
                    os.write(writer, b"fine.")
                except BaseException as error:
                    os.write(writer, str(error).encode() + b".")
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    told = b"this producer was made before a fork: make one in each process"
    assert os.read(reader, 1000).split(b".") == [told, told, told, b"fine", *[told if pending else b"fine"] * 2, b""]
    producer.flush(10)
    assert producer.send("orders", "v").result(10).topic == "orders", "the parent goes on"


@contextlib.contextmanager
def held_by_another_thread(lock: threading.Lock) -> Iterator[None]:
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            let_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        let_go.set()
        thread.join()
