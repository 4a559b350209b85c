"""How far behind a query is, as Kafka's own tool tells it of the query's group, on our broker and on Kafka's."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pylog
from tests.support.foreign_clients import CLIENTS, ForeignRecord
from tests.support.java_tools import CONSUMER_GROUPS, columns, run_kafka_tool
from tests.support.query_rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["pylog", "Apache Kafka"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "pylog":
        with pylog.Broker() as ours:
            yield ours.bootstrap_servers
    else:
        yield request.getfixturevalue("bootstrap_servers")


def test_the_tool_shows_what_a_query_has_read_and_what_waits_for_it(
    spark: "SparkSession", servers: str, tmp_path: Path
) -> None:
    topic, group = (f"{what}-{uuid.uuid4().hex[:8]}" for what in ("topic", "group"))
    client = CLIENTS["confluent-kafka"]
    client.create_topic(servers, topic, 2, config={"retention.ms": "-1"})  # the records are of 1970
    rows = Rows(spark, servers, tmp_path)

    def produce(count: int) -> None:
        client.produce(servers, topic, [ForeignRecord(None, b"x", ())] * count, partition=0)

    def run() -> list[int]:
        return rows.run(subscribe=topic, maxOffsetsPerTrigger="4", **{"kafka.group.id": group})

    def shown() -> dict[str, list[str]]:
        described = run_kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", servers, "--describe", "--group", group)
        names = ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
        return {row["PARTITION"]: [row[name] for name in names] for row in columns(described)}

    produce(10)
    assert run() == [4, 4, 2]
    assert shown() == {"0": ["10", "10", "0"], "1": ["0", "0", "0"]}
    produce(5)
    assert shown() == {"0": ["10", "15", "5"], "1": ["0", "0", "0"]}
    assert run() == [4, 1]
    assert shown() == {"0": ["15", "15", "0"], "1": ["0", "0", "0"]}
