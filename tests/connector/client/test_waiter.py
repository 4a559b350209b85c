"""Waiting for records: at the broker, and never longer than asked."""

from collections.abc import Callable

import pytest

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.waiter import wait_for_records

pytestmark = pytest.mark.connector

LONG_MS = 60_000  # a test that waited so long would fail by its own timeout
SHORT_MS = 20


@pytest.fixture
def cluster(bootstrap_servers: str) -> Cluster:
    return Cluster(ClientConfig.parse({"bootstrap.servers": bootstrap_servers, "request.timeout.ms": "120000"}))


@pytest.fixture
def topic(new_topic: Callable[..., str], bootstrap_servers: str) -> str:
    """Two partitions; the second has two records."""
    from confluent_kafka import Producer

    topic = new_topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for _ in range(2):
        producer.produce(topic, b"v", partition=1)
    assert producer.flush(30) == 0
    return topic


def test_records_that_are_there_end_the_wait(cluster: Cluster, topic: str) -> None:
    assert wait_for_records(cluster, {(topic, 0): 0, (topic, 1): 1}, LONG_MS)


def test_without_records_the_time_runs_out(cluster: Cluster, topic: str) -> None:
    assert not wait_for_records(cluster, {(topic, 0): 0, (topic, 1): 2}, SHORT_MS)


def test_an_offset_that_is_out_of_range_is_left_to_who_reads(cluster: Cluster, topic: str) -> None:
    assert wait_for_records(cluster, {(topic, 0): 7}, LONG_MS)


def test_a_topic_that_is_not_there_is_left_to_who_reads(cluster: Cluster) -> None:
    assert wait_for_records(cluster, {("no-such-topic", 0): 0}, SHORT_MS)


def test_nothing_to_wait_for_is_nothing_found(cluster: Cluster) -> None:
    assert not wait_for_records(cluster, {}, SHORT_MS)
