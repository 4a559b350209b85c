"""Topics that the broker compacted: the gaps are no loss, to either connector."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

SECONDS_MAX = 120.0  # the cleaner looks for work every 15 s
KEYS, ROUNDS = 10, 30
SOON = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
FORMATS = ("pylog", "kafka")


@pytest.fixture
def compacted(
    spark_kafka: "SparkSession",
    new_topic: Callable[..., str],
    bootstrap_servers: str,
    read: "Callable[..., DataFrame]",
) -> tuple[str, list[int]]:
    """The topic, and the offsets that are left: the last record of each key, and what was not compacted yet."""
    from confluent_kafka import Producer

    topic = new_topic(**SOON)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(ROUNDS):
        for key in range(KEYS):
            producer.produce(topic, f"{number}".encode(), f"{key}".encode(), partition=0)
        if number == ROUNDS - 2:
            assert producer.flush(30) == 0
            time.sleep(1)  # the next record begins a segment: only what is before it is compacted
    assert producer.flush(30) == 0
    deadline = time.monotonic() + SECONDS_MAX
    while len(left := _offsets(read(topic, format="kafka"))) == KEYS * ROUNDS:
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.5)
    assert left[0] > 0, "what was the beginning is gone"
    return topic, left


def _offsets(rows: "DataFrame") -> list[int]:
    return sorted(row["offset"] for row in rows.select("offset").collect())


def test_gaps_are_read_over_and_are_no_loss(
    spark_kafka: "SparkSession",
    compacted: tuple[str, list[int]],
    bootstrap_servers: str,
    read: "Callable[..., DataFrame]",
    tmp_path: Path,
) -> None:
    topic, left = compacted
    end = KEYS * ROUNDS
    assert left[-1] == end - 1
    within = left[0] // 2  # an offset that is gone
    window = {"startingOffsets": json.dumps({topic: {"0": within}}), "endingOffsets": json.dumps({topic: {"0": end}})}
    for format in FORMATS:
        assert _offsets(read(topic, format=format, failOnDataLoss="true")) == left, format
        assert _offsets(read(topic, format=format, minPartitions="7", **window)) == left, format
        # begins and ends within what is gone
        nothing = window | {"endingOffsets": json.dumps({topic: {"0": within + 1}})}
        assert _offsets(read(topic, format=format, **nothing)) == [], format

        stream = spark_kafka.readStream.format(format).option("kafka.bootstrap.servers", bootstrap_servers)
        stream = stream.option("subscribe", topic).option("failOnDataLoss", "true")
        rows = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load()
        to = rows.select("offset").writeStream.format("parquet").option("path", str(tmp_path / format))
        checkpoint = str(tmp_path / f"checkpoint-{format}")
        query = to.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(int(SECONDS_MAX))
        assert _offsets(spark_kafka.read.schema("offset long").parquet(str(tmp_path / format))) == left, format
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == len(left), format
