"""Rows into a topic and back, row for row, through a real Spark and a real broker."""

import datetime
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pylog.connector.client.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS = "headers array<struct<key:string,value:binary>>"
UTC = datetime.UTC
Read = Callable[..., "DataFrame"]
Write = Callable[..., None]
NewTopic = Callable[..., str]

ROWS = [
    (b"k", b"v", [("a", b"1"), ("a", b""), ("b", None)]),
    (b"", b"", []),
    (None, None, None),
    (b"k2", None, None),
    (None, b"\x00\xff", [("", b"\x00")]),
    (b"big", bytes(range(256)) * 3900, None),  # about 1 MB, what brokers take by default
]


def collected(rows: "DataFrame", *columns: str) -> list[tuple[Any, ...]]:
    """In the order of the log; byte arrays as bytes, headers as pairs."""
    found = rows.orderBy("topic", "partition", "offset").select(*columns).collect()
    return [tuple(_plain(value) for value in row) for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [(header["key"], _plain(header["value"])) for header in value]
    return value


@pytest.mark.parametrize("codec", CODECS)
def test_every_row_comes_back_as_it_was(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, codec: str
) -> None:
    topic = new_topic()
    rows = spark.createDataFrame(ROWS, f"key binary, value binary, {HEADERS}").coalesce(1)
    write(rows, topic, **{"kafka.compression.type": codec})
    found = collected(read(topic, includeHeaders="true"), "key", "value", "headers", "topic", "partition", "offset")
    expected = [(key, value, headers or None, topic, 0, n) for n, (key, value, headers) in enumerate(ROWS)]
    assert found == expected  # an empty list of headers is none: Kafka does not tell them apart


def test_strings_become_their_bytes_and_columns_that_kafka_does_not_have_are_left_out(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read
) -> None:
    topic = new_topic()
    rows = spark.createDataFrame([("kä", "vé", 1.5)], "key string, value string, price double")
    write(rows, topic)
    assert collected(read(topic), "key", "value") == [("kä".encode(), "vé".encode())]


def test_rows_say_where_and_when_they_go(spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read) -> None:
    one, other = new_topic(partitions=3), new_topic(partitions=3)
    at = datetime.datetime(2024, 2, 29, 12, 0, 0, 123_999, tzinfo=UTC)
    rows = spark.createDataFrame(
        [(one, 2, at, "a"), (other, 0, at, "b"), (one, 1, None, "c"), (one, 2, at, "d")],
        "topic string, partition int, timestamp timestamp, value string",
    ).coalesce(1)
    before = datetime.datetime.now(UTC).replace(tzinfo=None) - datetime.timedelta(seconds=1)
    write(rows)
    found = collected(read(f"{one},{other}"), "topic", "partition", "timestamp", "value")
    # Kafka keeps milliseconds. collect() gives local times of the session, which is in UTC.
    kept = at.astimezone(UTC).replace(microsecond=123_000)
    by_value = {value.decode(): (topic, partition) for topic, partition, _, value in found}
    assert by_value == {"a": (one, 2), "b": (other, 0), "c": (one, 1), "d": (one, 2)}
    times = {value.decode(): timestamp.astimezone(UTC) for _, _, timestamp, value in found}
    assert {times[value] for value in "abd"} == {kept}
    assert times["c"] > before.replace(tzinfo=UTC)


def test_neither_the_sessions_time_zone_nor_large_arrow_types_change_a_row(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read
) -> None:
    topic = new_topic()
    rows = spark.sql(
        "select 'k' key, 'v' value, timestamp_millis(1700000000123) timestamp,"
        " array(named_struct('key', 'h', 'value', cast('x' as binary))) headers"
    )
    settings = {"spark.sql.session.timeZone": "Asia/Kolkata", "spark.sql.execution.arrow.useLargeVarTypes": "true"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        write(rows, topic)
        found = read(topic, includeHeaders="true").selectExpr("key", "value", "unix_millis(timestamp)", "headers")
        assert [tuple(map(_plain, row)) for row in found.collect()] == [(b"k", b"v", 1700000000123, [("h", b"x")])]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_the_topic_option_beats_the_column(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read
) -> None:
    topic = new_topic()
    write(spark.createDataFrame([(None, "v"), ("other", "w")], "topic string, value string"), topic)
    assert sorted(collected(read(topic), "value")) == [(b"v",), (b"w",)]


def test_keys_land_where_other_murmur2_producers_put_them(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, bootstrap_servers: str
) -> None:
    from confluent_kafka import Producer

    ours, theirs = new_topic(partitions=7), new_topic(partitions=7)
    keys = [f"key-{number}" for number in range(500)] + ["", "ä", "\x00"]
    write(spark.createDataFrame([(key, "v") for key in keys], "key string, value string"), ours)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(theirs, b"v", key.encode())
    assert producer.flush(30) == 0
    placed = read(f"{ours},{theirs}").select("topic", "key", "partition").collect()
    by_topic = {name: {bytes(key): number for topic, key, number in placed if topic == name} for name in (ours, theirs)}
    assert len(by_topic[ours]) == len(keys)
    assert by_topic[ours] == by_topic[theirs]


def test_rows_without_a_key_are_spread(spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read) -> None:
    topic = new_topic(partitions=4)
    write(spark.range(40_000).selectExpr("repeat('x', 100) value").coalesce(1), topic)
    counts = dict(read(topic, schema="partition int").groupBy("partition").count().collect())
    assert sum(counts.values()) == 40_000
    assert len(counts) == 4


def test_small_batches_and_every_acks_keep_order_and_rows(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read
) -> None:
    rows = spark.range(300).selectExpr("cast(id as string) value").coalesce(1)
    for options in ({"kafka.batch.size": "1"}, {"kafka.acks": "1", "kafka.batch.size": "200"}):
        topic = new_topic()
        write(rows, topic, **options)
        assert collected(read(topic), "value") == [(str(number).encode(),) for number in range(300)]


def test_a_schema_chooses_columns(spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read) -> None:
    topic = new_topic()
    rows = spark.createDataFrame([("k", "v", [("h", b"x")])], f"key string, value string, {HEADERS}")
    write(rows, topic)
    chosen = read(topic, schema=f"offset long, {HEADERS}, value binary")
    assert chosen.columns == ["offset", "headers", "value"]
    assert [tuple(_plain(value) for value in row) for row in chosen.collect()] == [(0, [("h", b"x")], b"v")]


def test_offsets_bound_a_batch_also_inside_of_record_batches(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read
) -> None:
    topic = new_topic(partitions=2)
    rows = spark.range(1000).selectExpr("cast(id as string) value", "0 partition").coalesce(1)
    write(rows, topic)
    bounds = {
        "startingOffsets": json.dumps({topic: {"0": 123, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 877, "1": -1}}),
    }
    assert collected(read(topic, **bounds), "offset", "value") == [(n, str(n).encode()) for n in range(123, 877)]


def test_an_empty_topic_gives_no_rows(new_topic: NewTopic, read: Read) -> None:
    assert read(new_topic(partitions=3)).count() == 0


def test_no_rows_write_nothing(spark: "SparkSession", new_topic: NewTopic, write: Write, cluster: Cluster) -> None:
    topic = new_topic()
    write(spark.range(0).selectExpr("cast(id as string) value"), topic)
    assert cluster.latest([(topic, 0)]) == {(topic, 0): 0}


def test_a_missing_topic_is_made_by_the_first_write(spark: "SparkSession", write: Write, read: Read) -> None:
    import uuid

    topic = f"made-{uuid.uuid4().hex[:8]}"
    write(spark.range(3).selectExpr("cast(id as string) value"), topic)
    assert read(topic).count() == 3


def test_a_topic_is_read_by_several_tasks_and_written_by_several(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read
) -> None:
    topic = new_topic(partitions=3)
    write(spark.range(0, 30_000, 1, 4).selectExpr("cast(id as string) key", "cast(id as string) value"), topic)
    rows = read(topic)
    assert rows.rdd.getNumPartitions() == 3
    assert rows.selectExpr("count(*)", "count(distinct value)", "count(distinct partition, offset)").first() == (
        30_000,
        30_000,
        30_000,
    )
