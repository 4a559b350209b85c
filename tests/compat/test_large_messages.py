"""Messages up to `max.message.bytes`, to the byte: one that just fits is written, and read by whoever asks for less."""

import asyncio
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
import pytest

from pylog.storage.records import Record, encode_batch
from tests.support.foreign_clients import CLIENTS, TIMEOUT_SECONDS, ForeignRecord

NOW_MS = 1_700_000_000_000
CLIENT_BYTES_MAX = 50_000_000
SMALL_FETCH_BYTES = 10_000
LIMITS = {"as by default": 1_048_588, "ten megabytes": 10_000_000}


def with_confluent(servers: str, topic: str, value: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "message.max.bytes": CLIENT_BYTES_MAX})
    failed: list[confluent_kafka.KafkaError] = []
    producer.produce(
        topic, value, timestamp=NOW_MS, on_delivery=lambda error, message: failed.append(error) if error else None
    )
    assert producer.flush(TIMEOUT_SECONDS) == 0
    if failed:
        assert failed[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
        raise OverflowError


def with_kafka_python(servers: str, topic: str, value: bytes) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, max_request_size=CLIENT_BYTES_MAX)
    try:
        producer.send(topic, value, timestamp_ms=NOW_MS).get(TIMEOUT_SECONDS)
    except kafka.errors.MessageSizeTooLargeError:
        raise OverflowError from None
    finally:
        producer.close(TIMEOUT_SECONDS)


def with_aiokafka(servers: str, topic: str, value: bytes) -> None:
    async def send() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, max_request_size=CLIENT_BYTES_MAX, max_batch_size=CLIENT_BYTES_MAX
        )
        await producer.start()
        try:
            await producer.send_and_wait(topic, value, timestamp_ms=NOW_MS)
        except aiokafka.errors.MessageSizeTooLargeError:
            raise OverflowError from None
        finally:
            await producer.stop()

    asyncio.run(send())


def read_a_little_at_a_time(servers: str, topic: str, count: int) -> list[bytes]:
    """With fetches that are much smaller than a message."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        fetch_max_bytes=SMALL_FETCH_BYTES,
        max_partition_fetch_bytes=SMALL_FETCH_BYTES,
        consumer_timeout_ms=TIMEOUT_SECONDS * 1000,
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found = [next(consumer).value for _ in range(count)]
    consumer.close()
    return found


def value_of_batch(size_bytes: int) -> bytes:
    """The value of a record whose batch, alone and uncompressed, has just this size."""
    length = size_bytes - 100
    while len(encode_batch([Record(0, NOW_MS, None, bytes(length))])) < size_bytes:
        length += 1
    return bytes(length)


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    "send", [with_confluent, with_kafka_python, with_aiokafka], ids=["confluent-kafka", "kafka-python", "aiokafka"]
)
def test_a_message_of_the_limit_is_taken_and_one_more_byte_is_not(
    servers: str, send: Callable[[str, str, bytes], None], limit: int
) -> None:
    topic = f"large-{send.__name__}-{limit}"
    CLIENTS["confluent-kafka"].create_topic(servers, topic, 1, config={"max.message.bytes": str(limit)})
    fits = value_of_batch(limit)
    with pytest.raises(OverflowError):
        send(servers, topic, fits + b"x")
    send(servers, topic, fits)
    CLIENTS["confluent-kafka"].produce(servers, topic, [ForeignRecord(None, b"behind it", (), NOW_MS)])
    wanted = [fits, b"behind it"]
    assert read_a_little_at_a_time(servers, topic, 2) == wanted
    assert [record.value for record in CLIENTS["confluent-kafka"].consume(servers, topic, 2)] == wanted
