"""What waits for a leader fails with the reason why there is none, and with no other partition's."""

from collections.abc import Callable

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.delivery import DeliveryFuture
from pylog.connector.client.errors import ClientError, DeliveryFailed
from pylog.connector.client.producer import RecordProducer
from tests.connector.client.fake_kafka import METADATA, PRODUCE, FakeKafka

Produce = Callable[..., RecordProducer]
NO_LEADER = -1


@pytest.fixture
def producer(kafka: FakeKafka, produce: Produce) -> RecordProducer:
    kafka.add_topic("others", 1)
    made = produce(request_timeout_ms=600, delivery_timeout_ms=600)
    for topic, partition in kafka.logs:
        while isinstance(made.send(topic, "v", partition=partition).exception(10), DeliveryFailed):
            pass  # on a busy machine
    return made


def failure(future: DeliveryFuture) -> str:
    error = future.exception(10)
    assert isinstance(error, ClientError)
    return str(error)


def test_a_partition_whose_leader_is_gone(kafka: FakeKafka, producer: RecordProducer) -> None:
    kafka.leaders["orders", 1] = NO_LEADER
    said = failure(producer.send("orders", "v", partition=1))
    assert said.startswith("1 records for orders-1 were not written: not acknowledged within delivery.timeout.ms=600: ")
    assert "looking for the leader of orders-1: the broker answered LEADER_NOT_AVAILABLE" in said


def test_a_partition_that_its_topic_no_longer_has(kafka: FakeKafka, producer: RecordProducer) -> None:
    for gone in (1, 2):
        del kafka.logs["orders", gone], kafka.leaders["orders", gone]
    said = failure(producer.send("orders", "v", partition=2))
    assert "the topic 'orders' has no partition 2: its partitions are 0 to 0" in said


def test_what_is_said_of_one_topic_is_not_said_of_another(kafka: FakeKafka, producer: RecordProducer) -> None:
    """orders waits for the broker's disk, while others is looked for in vain."""
    kafka.faults[PRODUCE].extend([ErrorCode.KAFKA_STORAGE_ERROR] * 10_000)
    waits = producer.send("orders", "v", partition=0)
    del kafka.logs["others", 0], kafka.leaders["others", 0]
    lost = producer.send("others", "v", partition=0)
    assert "KAFKA_STORAGE_ERROR" in failure(waits)
    assert "others" not in failure(waits)
    assert "others" in failure(lost)
    assert kafka.asked(METADATA)
    kafka.faults[PRODUCE].clear()
