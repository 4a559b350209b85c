"""What the Spark tests share: rows into topics and out of them in a line each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def cluster(bootstrap_servers: str) -> Cluster:
    return Cluster(ClientConfig.parse({"bootstrap.servers": bootstrap_servers, "metadata.max.age.ms": "0"}))


@pytest.fixture(scope="session")
def produce(bootstrap_servers: str) -> Callable[..., None]:
    """`produce(topic, partition, count)`: records `partition/0`, `partition/1`, … by librdkafka."""
    from confluent_kafka import Producer

    def produce(topic: str, partition: int, count: int, first: int = 0) -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
        for number in range(first, first + count):
            producer.produce(topic, f"{partition}/{number}".encode(), partition=partition)
        assert producer.flush(30) == 0

    return produce


@pytest.fixture
def write(bootstrap_servers: str) -> "Callable[..., None]":
    """`write(rows, topic, **options)`; options with dots in a dictionary of their own: `**{"kafka.acks": "1"}`."""

    def write(rows: "DataFrame", topic: str | None = None, *, format: str = "pylog", **options: Any) -> None:
        writer = rows.write.format(format).option("kafka.bootstrap.servers", bootstrap_servers).options(**options)
        if topic is not None:
            writer = writer.option("topic", topic)
        writer.mode("append").save()

    return write


@pytest.fixture
def read(spark: "SparkSession", bootstrap_servers: str) -> "Callable[..., DataFrame]":
    def read(topic: str, *, format: str = "pylog", schema: str | None = None, **options: Any) -> "DataFrame":
        reader = spark.read.format(format).option("kafka.bootstrap.servers", bootstrap_servers)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.option("subscribe", topic).options(**options).load()

    return read
