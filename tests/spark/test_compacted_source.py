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
ONCE = (50, 150)  # where keys stand that come but once: gaps lie before, between and behind them
END = KEYS * ROUNDS + len(ONCE)
LEFT = [*ONCE, *range(END - 2 * KEYS, END)]  # the last record of each key, and the segment that is written to
SOON = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
FORMATS = ("pylog", "kafka")


@pytest.fixture
def compacted(
    spark_kafka: "SparkSession",
    new_topic: Callable[..., str],
    bootstrap_servers: str,
    read: "Callable[..., DataFrame]",
) -> str:
    """A topic of which `LEFT` is left."""
    from confluent_kafka import Producer

    topic = new_topic(**SOON)
    keys = [f"{number % KEYS}" for number in range(KEYS * ROUNDS)]
    for offset in ONCE:
        keys.insert(offset, f"once-{offset}")
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 200})
    for offset, key in enumerate(keys):
        if offset == END - KEYS:
            assert producer.flush(30) == 0
            time.sleep(1)  # the next record begins a segment: only what is before it is compacted
        producer.produce(topic, f"{offset}".encode(), key.encode(), partition=0)
    assert producer.flush(30) == 0
    deadline = time.monotonic() + SECONDS_MAX
    while (left := _offsets(read(topic, format="kafka"))) != LEFT:
        assert time.monotonic() < deadline, f"it was not compacted as it should be: {left}"
        time.sleep(0.5)
    return topic


def _offsets(rows: "DataFrame") -> list[int]:
    return sorted(row["offset"] for row in rows.select("offset").collect())


def test_gaps_are_read_over_and_are_no_loss(
    spark_kafka: "SparkSession",
    compacted: str,
    bootstrap_servers: str,
    read: "Callable[..., DataFrame]",
    tmp_path: Path,
) -> None:
    topic = compacted

    def between(start: int, end: int) -> dict[str, str]:
        bounds = {"startingOffsets": start, "endingOffsets": end}
        return {name: json.dumps({topic: {"0": offset}}) for name, offset in bounds.items()}

    for format in FORMATS:
        assert _offsets(read(topic, format=format, failOnDataLoss="true")) == LEFT, format
        assert _offsets(read(topic, format=format, minPartitions="7", **between(20, END))) == LEFT, format
        assert _offsets(read(topic, format=format, **between(100, 200))) == [150], format
        assert _offsets(read(topic, format=format, **between(60, 140))) == [], format

        stream = spark_kafka.readStream.format(format).option("kafka.bootstrap.servers", bootstrap_servers)
        stream = stream.option("subscribe", topic).option("failOnDataLoss", "true")
        rows = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load()
        to = rows.select("offset").writeStream.format("parquet").option("path", str(tmp_path / format))
        checkpoint = str(tmp_path / f"checkpoint-{format}")
        query = to.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(int(SECONDS_MAX))
        assert _offsets(spark_kafka.read.schema("offset long").parquet(str(tmp_path / format))) == LEFT, format
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == len(LEFT), format
