"""Save modes of a batch and output modes of a stream, beside those of Spark's own sink."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.support.spark_errors import failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

Read = Callable[..., "DataFrame"]
Write = Callable[..., None]
NewTopic = Callable[..., str]

STREAM_SECONDS_MAX = 120


def values(rows: "DataFrame") -> Counter[str]:
    return Counter(bytes(row["value"]).decode() for row in rows.select("value").collect())


# Batches


@pytest.mark.parametrize(
    ("mode", "ours", "sparks"),
    [
        pytest.param("append", None, None, id="append"),
        pytest.param(None, 'use either the "Append"', None, id="none given"),
        pytest.param("errorifexists", 'use either the "Append"', None, id="errorifexists"),
        pytest.param("ignore", 'use either the "Append"', "Save mode Ignore not allowed", id="ignore"),
        pytest.param("overwrite", "use mode('append')", "Save mode Overwrite not allowed", id="overwrite"),
    ],
)
def test_a_batch_appends_or_is_refused(
    spark: "SparkSession",
    new_topic: NewTopic,
    read: Read,
    bootstrap_servers: str,
    either: str,
    mode: str | None,
    ours: str | None,
    sparks: str | None,
) -> None:
    topic = new_topic()
    writer = spark.sql("select 'v' value").write.format(either)
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", topic)
    writer = writer if mode is None else writer.mode(mode)
    refused = ours if either == "pylog" else sparks
    if refused is None:
        writer.save()
    else:
        assert refused in failure(writer.save)
    assert read(topic).count() == (refused is None)


# Streams


@pytest.fixture
def counts(spark: "SparkSession", bootstrap_servers: str, new_topic: NewTopic) -> "tuple[str, DataFrame]":
    """A topic, and a stream that counts each of its values."""
    source = new_topic()
    stream = spark.readStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
    rows = stream.option("subscribe", source).option("startingOffsets", "earliest").load()
    return source, rows.groupBy("value").count().selectExpr("value key", "concat(value, '=', count) value")


@pytest.fixture
def run(bootstrap_servers: str, tmp_path: Path) -> Callable[..., None]:
    """`run(rows, topic, format, mode)`: all that is there now, from one checkpoint."""

    def run(rows: "DataFrame", topic: str, format: str, mode: str) -> None:
        writer = rows.writeStream.format(format).outputMode(mode).option("kafka.bootstrap.servers", bootstrap_servers)
        writer = writer.option("topic", topic).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(STREAM_SECONDS_MAX)

    return run


def test_complete_mode_writes_the_whole_result_each_time(
    spark: "SparkSession",
    counts: "tuple[str, DataFrame]",
    new_topic: NewTopic,
    write: Write,
    read: Read,
    run: Callable[..., None],
    either: str,
) -> None:
    source, rows = counts
    target = new_topic()
    for written in ("values ('a'), ('b'), ('a') as t(value)", "values ('c') as t(value)"):
        write(spark.sql(f"select * from {written}"), source)
        run(rows, target, either, "complete")
    assert values(read(target)) == Counter({"a=2": 2, "b=1": 2, "c=1": 1})


def test_append_mode_writes_each_row_when_it_is_final(
    spark: "SparkSession",
    bootstrap_servers: str,
    new_topic: NewTopic,
    write: Write,
    read: Read,
    run: Callable[..., None],
    either: str,
) -> None:
    source, target = new_topic(), new_topic(partitions=2)
    stream = spark.readStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
    rows = stream.option("subscribe", source).option("startingOffsets", "earliest").load().select("key", "value")
    for first in (0, 50):
        write(
            spark.range(first, first + 50).selectExpr("cast(id % 5 as string) key", "cast(id as string) value"), source
        )
        run(rows, target, either, "append")
    assert values(read(target)) == Counter(map(str, range(100)))


def test_update_mode_is_sparks_own_alone(
    spark: "SparkSession",
    counts: "tuple[str, DataFrame]",
    new_topic: NewTopic,
    write: Write,
    read: Read,
    run: Callable[..., None],
    either: str,
) -> None:
    """Spark itself refuses it for every sink in Python."""
    source, rows = counts
    target = new_topic()
    write(spark.sql("select * from values ('a'), ('a') as t(value)"), source)
    if either == "pylog":
        assert "pylog does not support Update mode" in failure(lambda: run(rows, target, either, "update"))
        return
    run(rows, target, either, "update")
    assert values(read(target)) == Counter(["a=2"])


def test_update_mode_with_foreach_batch_writes_the_rows_that_changed(
    spark: "SparkSession",
    counts: "tuple[str, DataFrame]",
    new_topic: NewTopic,
    write: Write,
    read: Read,
    bootstrap_servers: str,
    tmp_path: Path,
) -> None:
    source, rows = counts
    target = new_topic()
    sink: dict[str, Any] = {"kafka.bootstrap.servers": bootstrap_servers, "topic": target}

    def append(batch: "DataFrame", batch_id: int) -> None:
        batch.write.format("pylog").options(**sink).mode("append").save()

    for written in ("values ('a'), ('b'), ('a') as t(value)", "values ('a') as t(value)"):
        write(spark.sql(f"select * from {written}"), source)
        writer = rows.writeStream.foreachBatch(append).outputMode("update")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(STREAM_SECONDS_MAX)
    assert values(read(target)) == Counter(["a=2", "b=1", "a=3"])


def test_a_stream_checks_its_columns_as_a_batch_does(
    counts: "tuple[str, DataFrame]", run: Callable[..., None], either: str
) -> None:
    _, rows = counts
    said = failure(lambda: run(rows.selectExpr("value", "1L partition"), "never-made", either, "complete"))
    assert not [fact for fact in ("partition", "bigint", "int") if fact not in said], said
