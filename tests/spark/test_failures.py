"""What a user is told when something is missing, wrong or damaged: through a real Spark, as Spark shows it."""

import datetime
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

import pylog
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
Write = Callable[..., None]
NewTopic = Callable[..., str]
Produce = Callable[..., None]


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


# Options and columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"subscrib": "t"}, "subscrib is not an option: did you mean subscribe?", id="a slip"),
        pytest.param({"assign": "{}"}, "assign must be JSON of topics and their partitions", id="nothing chosen"),
        pytest.param({"kafka.auto.offset.reset": "latest"}, "use startingOffsets", id="Spark's to settle"),
    ],
)
def test_a_wrong_option_is_refused_by_load(read: Read, options: dict[str, str], message: str) -> None:
    assert message in refusal(lambda: read("t", **options))


def test_a_wrong_schema_is_refused(read: Read) -> None:
    assert "the column value is binary, not string" in refusal(lambda: read("t", schema="value string").count())


def test_an_option_of_streams_is_refused_in_a_batch_and_the_reverse(
    spark: "SparkSession", read: Read, bootstrap_servers: str
) -> None:
    assert "an option of spark.readStream" in refusal(lambda: read("t", maxOffsetsPerTrigger="5").count())
    stream = spark.readStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
    rows = stream.option("subscribe", "t").option("endingOffsets", "latest").load()
    query = refusal(lambda: rows.writeStream.format("noop").start().awaitTermination(60))
    assert "endingOffsets is an option of spark.read, not of spark.readStream" in query


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        pytest.param("key string", ("k",), "column value (string or binary) is required", id="no value"),
        pytest.param("value int", (1,), "value must be string or binary, not int", id="a number"),
        pytest.param("value string", ("v",), "set the option topic, or add a column topic", id="no topic"),
        pytest.param("value string, topic string", ("v", None), "a row's topic is null", id="a null topic"),
    ],
)
def test_rows_that_cannot_be_written_are_refused(
    spark: "SparkSession", write: Write, columns: str, row: tuple[Any, ...], message: str
) -> None:
    assert message in refusal(lambda: write(spark.createDataFrame([row], columns)))


@pytest.mark.connector
@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        pytest.param("value string, partition int", ("v", 7), "there is no partition 7; the topic has 2", id="high"),
        pytest.param("value string, partition int", ("v", -1), "there is no partition -1", id="negative"),
        pytest.param(
            "value string, timestamp timestamp",
            ("v", datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC)),
            "a record's timestamp cannot be before 1970",
            id="too early",
        ),
        pytest.param(
            "value string, headers array<struct<key:string,value:binary>>",
            ("v", [(None, b"x")]),
            "a header must have a key",
            id="a header without a key",
        ),
    ],
)
def test_rows_that_do_not_fit_their_topic_are_refused(
    spark: "SparkSession", write: Write, new_topic: NewTopic, columns: str, row: tuple[Any, ...], message: str
) -> None:
    topic = new_topic(partitions=2)
    said = refusal(lambda: write(spark.createDataFrame([row], columns), topic))
    assert message in said
    assert topic in said


def test_overwriting_a_topic_is_refused(spark: "SparkSession", bootstrap_servers: str) -> None:
    writer = spark.range(1).selectExpr("cast(id as string) value").write.format("pylog")
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", "t").mode("overwrite")
    assert "a topic cannot be overwritten, only appended to" in refusal(writer.save)


@pytest.mark.connector
def test_a_row_that_is_too_large_is_refused_with_what_to_raise(
    spark: "SparkSession", write: Write, new_topic: NewTopic
) -> None:
    rows = spark.range(1).selectExpr("repeat('x', 2000000) value")
    assert "max.request.size=1048576: raise it" in refusal(lambda: write(rows, new_topic()))


# Brokers and topics that are not there


def test_a_broker_that_is_not_there_is_named(spark: "SparkSession", nobody: str) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) value")
    reader = spark.read.format("pylog").option("kafka.bootstrap.servers", nobody).option("subscribe", "t")
    writer = rows.write.format("pylog").option("kafka.bootstrap.servers", nobody).option("topic", "t").mode("append")
    for said in (refusal(lambda: reader.load().count()), refusal(writer.save)):
        assert f"no broker could be reached ({nobody}:" in said
        assert "Is a broker running there?" in said


@pytest.mark.connector
def test_reading_a_topic_that_is_not_there_does_not_make_it(read: Read, cluster: Cluster) -> None:
    said = refusal(lambda: read("never-made").count())
    assert "the topic 'never-made' does not exist" in said
    assert "create it first" in said


def test_with_auto_creation_off_a_write_says_what_to_do(spark: "SparkSession") -> None:
    rows = spark.range(1).selectExpr("cast(id as string) value")
    with pylog.Broker(config={"auto.create.topics.enable": False}) as broker:
        writer = rows.write.format("pylog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        said = refusal(writer.option("topic", "missing").mode("append").save)
    assert "the topic 'missing' does not exist and the broker did not create it" in said
    assert "auto.create.topics.enable" in said


# Records that are gone or damaged


@pytest.mark.connector
def test_offsets_that_a_log_does_not_hold_are_data_loss(new_topic: NewTopic, produce: Produce, read: Read) -> None:
    topic = new_topic()
    produce(topic, 0, 5)
    beyond = {"startingOffsets": json.dumps({topic: {"0": 3}}), "endingOffsets": json.dumps({topic: {"0": 9}})}
    said = refusal(lambda: read(topic, **beyond).count())
    assert f"{topic}-0: the offsets [5, 9) are gone: the log ends at 5, and endingOffsets asks for 9" in said
    assert "set failOnDataLoss to false" in said
    assert read(topic, failOnDataLoss="false", **beyond).count() == 2


@pytest.mark.connector
def test_a_start_behind_its_end_is_refused(new_topic: NewTopic, produce: Produce, read: Read) -> None:
    topic = new_topic()
    produce(topic, 0, 5)
    crossed = {"startingOffsets": json.dumps({topic: {"0": 3}}), "endingOffsets": json.dumps({topic: {"0": 2}})}
    said = refusal(lambda: read(topic, **crossed))
    assert f"{topic}-0: startingOffsets (3) is behind endingOffsets (2)" in said


def test_a_damaged_batch_is_named_by_topic_partition_and_offset(spark: "SparkSession", tmp_path: Path) -> None:
    with pylog.Broker(tmp_path / "data") as broker:
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        cluster = Cluster(ClientConfig.parse({"bootstrap.servers": broker.bootstrap_servers}))
        cluster.create_topic("orders", 2, 1)
        rows = spark.range(200).selectExpr("cast(id as string) value", "1 partition").coalesce(1)
        for _ in range(2):  # two record batches: the first stays whole
            rows.write.format("pylog").options(**options).option("topic", "orders").mode("append").save()
        (log,) = (tmp_path / "data").rglob("orders-1/*.log")
        with log.open("r+b") as file:
            file.seek(-5, 2)
            byte = file.read(1)
            file.seek(-5, 2)
            file.write(bytes([byte[0] ^ 1]))
        reader = spark.read.format("pylog").options(**options).option("subscribe", "orders")
        said = refusal(lambda: reader.load().write.format("noop").mode("overwrite").save())
        assert "topic 'orders', partition 1, batch at offset 200" in said
        whole = {"orders": {"0": 0, "1": 200}}
        assert reader.option("endingOffsets", json.dumps(whole)).load().count() == 200
