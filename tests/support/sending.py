"""Records by librdkafka, for tests that look for them again."""

import time


def send(servers: str, topic: str, partition: int, numbers: range, *, age_ms: int = 0) -> None:
    """`partition/number` for each of the numbers, so old by their timestamps."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    timestamp_ms = time.time_ns() // 1_000_000 - age_ms
    for number in numbers:
        producer.produce(topic, f"{partition}/{number}".encode(), partition=partition, timestamp=timestamp_ms)
    assert producer.flush(30) == 0
