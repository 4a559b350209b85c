"""Large values, records that are too large, and topics that are not there: the task fails with topic, partition and
cause, or all rows are there."""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pylog
from tests.support.spark_errors import failure, refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
Write = Callable[..., None]
NewTopic = Callable[..., str]

MB = 1 << 20
# What of a value of so many bytes is not the same everywhere: 64 of its bytes.
VALUE = "cast(rpad(sha2(cast(id as string), 256), {bytes}, 'x') as binary) value"


@pytest.mark.connector
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_values_of_a_megabyte_and_more(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, codec: str
) -> None:
    topic = new_topic(partitions=2, **{"max.message.bytes": str(4 * MB)})
    options = {"kafka.max.request.size": str(4 * MB), "kafka.compression.type": codec}
    rows = spark.range(24).selectExpr("cast(id as string) key", VALUE.format(bytes=f"{MB} + cast(id as int) * 50000"))
    write(rows, topic, **options)
    wanted = rows.selectExpr("cast(key as binary) key", "length(value) bytes", "md5(value) md5")
    found = read(topic).selectExpr("key", "length(value) bytes", "md5(value) md5")
    assert sorted(found.collect()) == sorted(wanted.collect())


@pytest.mark.connector
def test_a_record_above_max_request_size_fails_with_its_partition_and_what_to_raise(
    spark: "SparkSession", new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic(partitions=3)
    rows = spark.range(1).selectExpr(VALUE.format(bytes=2 * MB), "2 partition")
    said = refusal(lambda: write(rows, topic))
    assert f"{topic}-2" in said
    assert f"max.request.size={MB}" in said


@pytest.mark.connector
def test_a_record_above_what_its_topic_takes_fails_with_its_partition_and_what_to_raise(
    spark: "SparkSession", new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic(partitions=3, **{"max.message.bytes": "100000"})
    rows = spark.range(1).selectExpr(VALUE.format(bytes=200_000), "2 partition")
    said = refusal(lambda: write(rows, topic))
    assert f"{topic}-2" in said
    assert "MESSAGE_TOO_LARGE" in said
    assert "max.message.bytes" in said


@pytest.mark.connector
def test_a_write_that_fails_leaves_what_other_tasks_have_written(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read
) -> None:
    """As with any sink that appends: readers see it, and a second attempt of the job writes it again."""
    topic = new_topic(partitions=2)
    rows = spark.range(0, 40, 1, 4).selectExpr(
        "cast(id as string) value", "cast(if(id = 39, 7, 0) as int) partition"
    )  # the last of four tasks has a row that cannot be written
    assert "there is no partition 7" in failure(lambda: write(rows, topic))
    found = {int(bytes(row["value"])) for row in read(topic).collect()}
    # Two run at a time, so two of the first three are done before the last begins; the third may be cut off with it.
    assert sum(found >= set(range(first, first + 10)) for first in (0, 10, 20)) >= 2
    assert 39 not in found


@pytest.mark.connector
def test_partitions_that_were_added_are_found_when_a_row_names_one(
    spark: "SparkSession", new_topic: NewTopic, add_partitions: Callable[[str, int], None], write: Write, read: Read
) -> None:
    topic = new_topic()
    write(spark.sql("select 'v' value, 0 partition"), topic)  # from now on its partitions are known
    add_partitions(topic, 3)
    write(spark.sql("select 'w' value, 2 partition"), topic)
    assert sorted(row["partition"] for row in read(topic).collect()) == [0, 2]


# Topics that are not there


@pytest.mark.connector
def test_missing_topics_are_made_by_rows_and_by_the_option(
    spark: "SparkSession", write: Write, read: Read, either: str
) -> None:
    one, other, third = (f"made-{uuid.uuid4().hex[:8]}" for _ in range(3))
    write(spark.createDataFrame([("v", one), ("w", other)], "value string, topic string"), format=either)
    write(spark.sql("select 'v' value"), third, format=either)
    assert [read(topic).count() for topic in (one, other, third)] == [1, 1, 1]


@pytest.mark.connector
def test_a_name_that_no_topic_can_have_is_said(spark: "SparkSession", write: Write, either: str) -> None:
    said = failure(lambda: write(spark.sql("select 'v' value"), "no such/name", format=either))
    assert "no such/name" in said


@pytest.mark.timeout(60)  # not the minutes of kafka.delivery.timeout.ms
def test_where_topics_are_not_made_the_write_fails_soon_and_says_what_to_do(spark: "SparkSession") -> None:
    with pylog.Broker(config={"auto.create.topics.enable": False}) as broker:
        there = broker.create_topic("there")
        kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        rows = spark.createDataFrame([("v", there), ("w", "missing")], "value string, topic string").coalesce(1)
        said = refusal(rows.write.format("pylog").options(**kafka).mode("append").save)
    assert "the topic 'missing' does not exist and the broker did not create it: create it first" in said
    assert "auto.create.topics.enable" in said
