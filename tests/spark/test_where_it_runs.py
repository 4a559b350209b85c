"""Many partitions, several queries at once, several sessions in one process, and the session that is made for it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pylog
from pylog.connector.spark.session import PRESETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

PARTITIONS = 200
DEADLINE_S = 180


def test_two_hundred_partitions_are_read_whole_as_a_batch_and_as_a_stream(
    spark: "SparkSession",
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    write: Callable[..., None],
    read: "Callable[..., DataFrame]",
    tmp_path: Path,
    either: str,
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    each = 5
    rows = spark.range(each * PARTITIONS).selectExpr(
        "cast(id as string) value", f"cast(id % {PARTITIONS} as int) partition"
    )
    write(rows.coalesce(1), topic)
    expected = dict.fromkeys(range(PARTITIONS), each)
    if either == "pylog":  # Spark's own makes a consumer for each partition, which takes its time: once will do
        found = read(topic).groupBy("partition").count().collect()
        assert {row["partition"]: row["count"] for row in found} == expected
    stream = spark.readStream.format(either).option("kafka.bootstrap.servers", bootstrap_servers)
    query = (
        stream.options(subscribe=topic, startingOffsets="earliest")
        .load()
        .select("partition", "offset")
        .writeStream.format("memory")
        .queryName(f"two_hundred_{either}")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    found = spark.table(f"two_hundred_{either}")
    assert found.distinct().count() == found.count()
    assert {row["partition"]: row["count"] for row in found.groupBy("partition").count().collect()} == expected


def test_queries_run_beside_each_other_and_in_several_sessions(
    spark: "SparkSession",
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> None:
    topics = [new_topic(), new_topic()]
    for number, topic in enumerate(topics):
        produce(topic, 0, 10 * (number + 1))
    other = spark.newSession()
    pylog.register(other)
    queries = []
    for number, (session, topic) in enumerate([(spark, topics[0]), (spark, topics[1]), (other, topics[1])]):
        stream = session.readStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
        rows = stream.options(subscribe=topic, startingOffsets="earliest").load()
        writer = rows.writeStream.format("memory").queryName(f"beside_{number}")
        queries.append(writer.option("checkpointLocation", str(tmp_path / str(number))).start())
    try:
        for query in queries:
            query.processAllAvailable()
        assert [spark.table("beside_0").count(), spark.table("beside_1").count()] == [10, 20]
        assert other.table("beside_2").count() == 20
        batch = other.read.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
        assert batch.option("subscribe", topics[0]).load().count() == 10
    finally:
        for query in queries:
            query.stop()


def test_a_session_that_is_there_is_taken_registered_and_has_the_presets_unless_told_otherwise(
    bare_spark: "SparkSession",
) -> None:
    session = pylog.spark_session("again")
    assert session.sparkContext is bare_spark.sparkContext
    changeable = {name: value for name, value in PRESETS.items() if name.startswith("spark.sql.")}
    assert {name: session.conf.get(name) for name in changeable} == changeable
    pylog.spark_session(config={"spark.sql.execution.arrow.pyspark.enabled": "false"})
    assert session.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "false"
