"""What the Spark tests share: rows into topics and out of them in a line each."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from tests.support.sending import send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pylog.connector.spark.stream_source import StreamReader
    from tests.support.query_rows import Rows
    from tests.support.stream_readers import NewReader


@pytest.fixture(scope="session")
def cluster(bootstrap_servers: str) -> Cluster:
    return Cluster(ClientConfig.parse({"bootstrap.servers": bootstrap_servers, "metadata.max.age.ms": "0"}))


@pytest.fixture
def bare_spark(spark: "SparkSession") -> "Iterator[SparkSession]":
    """`spark` without any setting of `pylog.spark_session`'s, and afterwards as it was."""
    from pylog.connector.spark.checkpoint_files import OPTION
    from pylog.connector.spark.session import PRESETS

    changeable = (name for name in PRESETS if name.startswith(("spark.sql.", "spark.hadoop.")))
    names = [OPTION, *changeable]
    before = {name: spark.conf.get(name, None) for name in names}
    for name in names:
        spark.conf.unset(name)
    try:
        yield spark
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@pytest.fixture(scope="session")
def produce(bootstrap_servers: str) -> Callable[..., None]:
    """`produce(topic, partition, count)`: records `partition/0`, `partition/1`, … by librdkafka."""

    def produce(topic: str, partition: int, count: int, first: int = 0) -> None:
        send(bootstrap_servers, topic, partition, range(first, first + count))

    return produce


@pytest.fixture(scope="session")
def delete_records(bootstrap_servers: str) -> Callable[[str, int, int], None]:
    """`delete_records(topic, partition, offset)`: all before that offset, as retention would."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    def delete_records(topic: str, partition: int, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        (done,) = admin.delete_records([TopicPartition(topic, partition, offset)]).values()
        assert done.result(30).low_watermark == offset

    return delete_records


@pytest.fixture(scope="session")
def add_partitions(bootstrap_servers: str) -> Callable[[str, int], None]:
    """`add_partitions(topic, count)`: so many in all."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    def add_partitions(topic: str, count: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)

    return add_partitions


@pytest.fixture
def new_reader(bootstrap_servers: str) -> "NewReader":
    """`new_reader(topic, startingOffsets, **options)`: as Spark's planner holds one, without Spark."""
    from tests.support.stream_readers import stream_reader

    def new_reader(topic: str, startingOffsets: str = "earliest", **options: str) -> "StreamReader":
        given = {"subscribe": topic} if not options.keys() & {"assign", "subscribePattern"} else {}
        return stream_reader(bootstrap_servers, given | {"startingOffsets": startingOffsets} | options)

    return new_reader


@pytest.fixture(params=["pylog", "kafka"])
def either(request: pytest.FixtureRequest) -> str:
    """The name of a format: ours, and Spark's own where its jars could be had."""
    name: str = request.param
    if name == "kafka":
        request.getfixturevalue("spark_kafka")
    return name


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


@pytest.fixture
def rows(spark: "SparkSession", bootstrap_servers: str, tmp_path: Path) -> "Rows":
    from tests.support.query_rows import Rows

    return Rows(spark, bootstrap_servers, tmp_path)
