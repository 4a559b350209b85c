"""Tables through `pylog.Producer` to a broker, read back by other clients, row for row."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

import pylog
from pylog.connector.client.errors import BufferFull, DeliveryFailed, RecordTooLarge

pytestmark = pytest.mark.connector

NewTopic = Callable[..., str]
Produce = Callable[..., pylog.Producer]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def produce(bootstrap_servers: str) -> Iterator[Produce]:
    made: list[pylog.Producer] = []

    def make(**options: Any) -> pylog.Producer:
        named = {name.replace("_", "."): value for name, value in options.items()}
        made.append(pylog.Producer({"bootstrap.servers": bootstrap_servers, **named}))
        return made[-1]

    yield make
    for producer in made:
        producer.close(0)


def read(bootstrap_servers: str, topic: str, count: int) -> dict[int, list[Any]]:
    """What confluent-kafka finds, by partition and in the order of the log."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "tables", "auto.offset.reset": "earliest"}
    )
    found: dict[int, list[Any]] = {}
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        deadline = time.monotonic() + 60
        while count and time.monotonic() < deadline:
            for message in consumer.consume(count, 1):
                assert message.error() is None
                found.setdefault(message.partition(), []).append(message)
                count -= 1
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_arrives(bootstrap_servers: str, new_topic: NewTopic, produce: Produce, codec: str) -> None:
    topic = new_topic(partitions=3)
    table = pa.table(
        {
            "value": pa.array(["ä", None, "c", ""]),
            "key": pa.array([b"k", b"", None, None]),
            "headers": pa.array([[("a", b"1"), ("a", None)], None, [], None], HEADERS),
            "partition": pa.array([2, 2, 0, 2], pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000, 1_700_000_000_001_999, None, 5_000], pa.timestamp("us")),
            "price": [1.5, 2.5, 3.5, 4.5],
        }
    )
    before = int(time.time() * 1000)
    sent = produce(compression_type=codec).send_table(topic, table).result(30)
    assert (sent.topic, sent.row_count) == (topic, 4)
    assert sorted(sent.batches) == [(0, 0, 1), (2, 0, 3)]
    found = read(bootstrap_servers, topic, 4)
    assert [(one.key(), one.value(), one.headers()) for one in found[2]] == [
        (b"k", "ä".encode(), [("a", b"1"), ("a", None)]),
        (b"", None, None),
        (None, b"", None),
    ]
    assert [one.timestamp()[1] for one in found[2]] == [1_700_000_000_000, 1_700_000_000_001, 5]
    assert found[0][0].timestamp()[1] >= before


def test_order_stays_within_a_partition_over_tables_slices_and_batches(
    bootstrap_servers: str, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(partitions=4)
    producer = produce(batch_size=2000, buffer_memory=50_000)
    for start in range(0, 6000, 2000):
        numbers = range(start, start + 2000)
        columns = {"key": [b"%d" % (n % 50) for n in numbers], "value": [b"%d" % n for n in numbers]}
        future = producer.send_table(topic, pa.table(columns))
    future.result(60)
    found = read(bootstrap_servers, topic, 6000)
    assert sum(map(len, found.values())) == 6000
    for messages in found.values():
        numbers_found = [int(message.value()) for message in messages]
        assert numbers_found == sorted(set(numbers_found))


def test_keys_of_tables_and_of_records_meet(new_topic: NewTopic, produce: Produce, bootstrap_servers: str) -> None:
    topic = new_topic(partitions=7)
    keys = [b"key-%d" % n for n in range(100)]
    producer = produce()
    futures = {key: producer.send(topic, "record", key=key) for key in keys}
    producer.send_table(topic, pa.table({"key": keys, "value": ["table"] * 100})).result(30)
    placed = {key: future.result(30).partition for key, future in futures.items()}
    found = read(bootstrap_servers, topic, 200)
    assert {one.key(): one.partition() for each in found.values() for one in each if one.value() == b"table"} == placed


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"partitioner_class": "RoundRobinPartitioner"}, [25, 25, 25, 25], id="round-robin"),
        pytest.param({"partitioner_ignore_keys": True}, [0, 0, 0, 100], id="keys ignored: one batch"),
    ],
)
def test_partitioners(
    new_topic: NewTopic, produce: Produce, bootstrap_servers: str, options: dict[str, Any], expected: list[int]
) -> None:
    topic = new_topic(partitions=4)
    produce(**options).send_table(topic, pa.table({"key": ["a"] * 100, "value": ["v"] * 100})).result(30)
    found = read(bootstrap_servers, topic, 100)
    assert sorted(len(found.get(partition, [])) for partition in range(4)) == expected


def test_an_empty_table_is_written_at_once(new_topic: NewTopic, produce: Produce) -> None:
    assert produce().send_table(new_topic(), pa.table({"value": pa.array([], pa.binary())})).result(0).batches == ()


def test_a_callback_hears_of_the_whole_table(new_topic: NewTopic, produce: Produce) -> None:
    told: list[Any] = []
    topic = new_topic(partitions=3)
    future = produce(batch_size=200).send_table(
        topic, pa.table({"value": ["v" * 50] * 30}), on_delivery=lambda *it: told.append(it)
    )
    assert told == [] or future.done()
    result = future.result(30)
    deadline = time.monotonic() + 10
    while not told and time.monotonic() < deadline:
        time.sleep(0.001)
    assert told == [(result, None)]
    assert sum(rows for _, _, rows in result.batches) == 30


@pytest.mark.parametrize(
    ("table", "says"),
    [
        pytest.param({"key": ["k"]}, "no column 'value'", id="no value"),
        pytest.param({"vlaue": ["v"]}, "no column 'value' among", id="nothing that is written"),
        pytest.param({"value": [1]}, "value", id="a number"),
        pytest.param({"value": ["v"], "partition": [9]}, "no partition 9", id="no such partition"),
        pytest.param({"value": ["v"], "partition": ["0"]}, "must be an integer", id="a partition in words"),
        pytest.param({"value": ["v"], "timestamp": [-5]}, "before 1970", id="an early time"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused(
    new_topic: NewTopic, produce: Produce, table: dict[str, Any], says: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        produce().send_table(new_topic(), pa.table(table))


def test_a_row_too_large_for_the_client_and_one_too_large_for_the_topic(new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(**{"max.message.bytes": "10000"})
    with pytest.raises(RecordTooLarge, match=rf"{topic}-0 .*max\.request\.size=5000"):
        produce(max_request_size=5000).send_table(topic, pa.table({"value": ["x" * 6000]}))
    with pytest.raises(DeliveryFailed, match=rf"{topic}-0 .*raise max\.message\.bytes"):
        produce().send_table(topic, pa.table({"value": ["x" * 20_000]})).result(30)


def test_batches_too_large_for_the_topic_are_cut_until_they_fit(
    new_topic: NewTopic, produce: Produce, bootstrap_servers: str
) -> None:
    topic = new_topic(**{"max.message.bytes": "3000"})
    values = [b"%d" % n + b"x" * 200 for n in range(200)]
    future = produce(batch_size=20_000).send_table(topic, pa.table({"value": values}))
    assert sum(rows for _, _, rows in future.result(60).batches) == 200
    assert [one.value() for one in read(bootstrap_servers, topic, 200)[0]] == values


def test_a_table_that_finds_no_room_fails_its_future_too(new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic()
    producer = produce(buffer_memory=10_000, batch_size=4000, max_block_ms=1)
    failed = 0
    for _ in range(50):
        try:
            producer.send_table(topic, pa.table({"value": ["x" * 1000] * 1000}))
        except BufferFull:
            failed += 1
    assert failed > 0
    producer.flush(60)
    assert producer._accumulator.used_bytes == 0


@pytest.mark.parametrize("codec", ["lz4", "snappy", "gzip", "zstd"])
def test_a_batch_that_compression_makes_larger_is_written(
    bootstrap_servers: str, new_topic: NewTopic, produce: Produce, codec: str
) -> None:
    """Bytes without any order, of which 19 rows make a batch of 19,992: as large as a request may be, but for 8."""
    topic = new_topic()
    limits = {"batch_size": 20_000, "max_request_size": 20_000}
    values = [random.Random(number).randbytes(1040) for number in range(95)]
    producer = produce(compression_type=codec, **limits)
    producer.send_table(topic, pa.table({"value": values})).result(30)
    assert [message.value() for message in read(bootstrap_servers, topic, 95)[0]] == values
