"""What the sink wrote, read by others row for row; and its keys where Java's producer puts them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.support.foreign_clients import AioKafka, Confluent, ForeignClient, ForeignRecord, KafkaPython

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

Read = Callable[..., "DataFrame"]
Write = Callable[..., None]
NewTopic = Callable[..., str]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CLIENTS: list[ForeignClient] = [Confluent(), KafkaPython(), AioKafka()]
TIME_MS = 1_700_000_000_000
PARTITIONS = 200

ODD: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"k", b"v", [("a", b"1"), ("a", b""), ("b", None)]),
    (b"", b"", []),
    (None, None, []),
    (None, b"\x00\xff", [("\u00e4", bytes(range(256)))]),
    (b"tombstone", None, []),
]
PLAIN = [(b"key-%d" % (n % 7), b"value-%d" % n * (n % 40), [("n", b"%d" % n)]) for n in range(400)]
RECORDS = [
    ForeignRecord(key, value, tuple(headers), TIME_MS + 17 * number)
    for number, (key, value, headers) in enumerate([*ODD, *PLAIN])
]


@pytest.fixture
def topic(spark: "SparkSession", new_topic: NewTopic, write: Write, codec: str) -> str:
    """A topic with `RECORDS`, as our sink has written them."""
    topic = new_topic()
    columns = "key binary, value binary, headers array<struct<key:string,value:binary>>, time_ms long"
    rows: list[tuple[Any, ...]] = [(one.key, one.value, list(one.headers), one.timestamp_ms) for one in RECORDS]
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    frame = frame.selectExpr("key", "value", "headers", "timestamp_millis(time_ms) timestamp")
    write(frame, topic, **{"kafka.compression.type": codec, "kafka.batch.size": "4096"})  # a dozen batches
    return topic


def from_jvm(rows: "DataFrame") -> list[ForeignRecord]:
    columns = ("key", "value", "headers", "unix_millis(timestamp) time_ms")
    return [
        ForeignRecord(
            row["key"] if row["key"] is None else bytes(row["key"]),
            row["value"] if row["value"] is None else bytes(row["value"]),
            tuple((key, value if value is None else bytes(value)) for key, value in row["headers"] or ()),
            row["time_ms"],
        )
        for row in rows.orderBy("offset").selectExpr(*columns).collect()
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_others_read_every_row_as_it_was_written(topic: str, bootstrap_servers: str) -> None:
    for client in CLIENTS:
        assert client.consume(bootstrap_servers, topic, len(RECORDS)) == RECORDS, type(client).__name__


@pytest.mark.parametrize("codec", CODECS)
def test_sparks_own_source_reads_them_too(spark_kafka: "SparkSession", topic: str, read: Read) -> None:
    assert from_jvm(read(topic, format="kafka", includeHeaders="true")) == RECORDS


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_others_read_batches_of_half_a_megabyte(
    spark_kafka: "SparkSession", new_topic: NewTopic, read: Read, write: Write, bootstrap_servers: str, codec: str
) -> None:
    """Whose lz4 blocks are larger than a small batch's, and whose zstd does not look back all of their way."""
    topic, count = new_topic(), 4_000
    rows = spark_kafka.range(count).selectExpr("concat(sha2(cast(id as string), 512), repeat('same ', 20)) value")
    values = [row["value"].encode() for row in rows.orderBy("value").collect()]
    write(rows.coalesce(1), topic, **{"kafka.compression.type": codec})
    for client in CLIENTS:
        found = client.consume(bootstrap_servers, topic, count)
        assert sorted(one.value or b"" for one in found) == values, type(client).__name__
    assert sorted(bytes(row["value"]) for row in read(topic, format="kafka").select("value").collect()) == values


def everything(servers: str, topic: str, count: int) -> list[Any]:
    """All messages of all partitions, in the order of each; Spark would start a task for each partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[Any] = []
    while len(found) < count:
        some = consumer.consume(count, 1.0)
        assert some, f"{len(found)} of {count}"
        found += some
    assert not consumer.consume(1, 0.5), f"more than {count}"
    consumer.close()
    return found


def test_keys_go_to_the_partitions_of_javas_producer_of_which_there_are_200(
    spark_kafka: "SparkSession", new_topic: NewTopic, write: Write, bootstrap_servers: str
) -> None:
    ours, javas = new_topic(partitions=PARTITIONS), new_topic(partitions=PARTITIONS)
    # Of every length modulo 4, which murmur2 treats apart, the empty key among them, with bytes above 127.
    keys = "substring(unhex(sha2(cast(id as string), 512)), 1, cast(id % 64 as int)) key"
    rows = spark_kafka.range(3_000).selectExpr(keys, "cast(id as string) value")
    write(rows, ours)
    # With more in flight Java's producer gets stuck on a new topic of Apache Kafka: a leader that is not ready refuses
    # the first batch and takes the second, and from then on the first is out of order.
    write(rows, javas, format="kafka", **{"kafka.max.in.flight.requests.per.connection": "1"})
    placed = [
        {(one.value(), one.key()): one.partition() for one in everything(bootstrap_servers, topic, 3_000)}
        for topic in (ours, javas)
    ]
    assert len(placed[0]) == 3_000
    assert placed[0] == placed[1]
    assert set(placed[0].values()) == set(range(PARTITIONS))


def test_rows_without_a_key_reach_all_of_200_partitions(
    spark: "SparkSession", new_topic: NewTopic, write: Write, bootstrap_servers: str
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    rows = spark.range(20_000).selectExpr("cast(id as string) value").coalesce(1)
    write(rows, topic, **{"kafka.batch.size": "1000"})
    found = everything(bootstrap_servers, topic, 20_000)
    assert {int(one.value()) for one in found} == set(range(20_000))
    assert {one.partition() for one in found} == set(range(PARTITIONS))
