"""The group of a query on a real Spark: where it commits, where it starts, and who else may be in it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.errors import KafkaError
from pylog.connector.spark.offsets import NOTE
from tests.support.group_members import Wanted, members, until_shared
from tests.support.query_rows import DEADLINE_S, Rows, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.connector

NewTopic = Callable[..., str]
Produce = Callable[..., None]


def test_a_query_without_a_group_of_the_users_has_one_of_its_own_whose_commits_can_be_read(
    spark: "SparkSession", rows: Rows, new_topic: NewTopic, produce: Produce, cluster: Cluster, bootstrap_servers: str
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 7)
    query = rows.start(subscribe=topic, groupIdPrefix="orders")
    assert query.awaitTermination(DEADLINE_S)
    end = json.loads(query.lastProgress["sources"][0]["endOffset"])
    group = f"orders-{end[NOTE]['query']}"
    assert cluster.committed_offsets(group) == {(topic, 0): 7, (topic, 1): 0}
    produce(topic, 0, 3, first=7)
    assert rows.run(subscribe=topic, groupIdPrefix="orders") == [3]
    assert cluster.committed_offsets(group) == {(topic, 0): 10, (topic, 1): 0}
    commits = spark.read.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
    commits = commits.option("subscribe", "__consumer_offsets").option("decode", "offsets").load()
    assert commits.columns[:6] == ["group", "topic", "partition", "offset", "metadata", "commit_timestamp"]
    mine = commits.where(commits.group == group).orderBy("log_offset").collect()
    assert [(row.partition, row.offset) for row in mine][:2] == [(0, 7), (1, 0)]
    assert {(row.topic, row.partition): row.offset for row in mine} == cluster.committed_offsets(group)
    assert all(abs(row.commit_timestamp.timestamp() - time.time()) < 600 for row in mine)


def test_a_new_query_starts_where_a_group_stands(
    rows: Rows, new_topic: NewTopic, produce: Produce, cluster: Cluster
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 10)
    produce(topic, 1, 10)
    cluster.commit_offsets(f"other-{topic}", {(topic, 0): 6})
    at_group = {"subscribe": topic, "startingOffsets": "group", "kafka.group.id": f"other-{topic}"}
    said = rows.failure(startingOffsetsWithoutCommit="error", **at_group)
    assert f"the group 'other-{topic}' has no commit for {topic}-1" in said
    assert rows.run({"once": True}, startingOffsetsWithoutCommit="earliest", **at_group) == [14]
    assert rows.found() == records(topic, 0, range(6, 10)) + records(topic, 1, range(10))
    produce(topic, 0, 1, first=10)
    assert rows.run(**at_group) == [1]
    assert cluster.committed_offsets(f"other-{topic}") == {(topic, 0): 11, (topic, 1): 10}


def test_partitions_without_a_commit_may_start_at_their_end(
    rows: Rows, new_topic: NewTopic, produce: Produce, cluster: Cluster
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 10)
    produce(topic, 1, 10)
    group = f"other-{topic}"
    cluster.commit_offsets(group, {(topic, 0): 6})
    at_group = {"startingOffsets": "group", "startingOffsetsWithoutCommit": "latest", "kafka.group.id": group}
    assert rows.run(subscribe=topic, **at_group) == [4]
    assert cluster.committed_offsets(group) == {(topic, 0): 10, (topic, 1): 10}
    produce(topic, 1, 3, first=10)
    assert rows.run(subscribe=topic, **at_group) == [3]
    assert rows.found() == records(topic, 0, range(6, 10)) + records(topic, 1, range(10, 13))


def test_commits_that_are_refused_while_the_group_has_members_do_not_hold_a_query_up(
    rows: Rows, new_topic: NewTopic, produce: Produce, cluster: Cluster, bootstrap_servers: str
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 10)
    group = f"crowded-{topic}"
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "4", "kafka.group.id": group}
    with members(Wanted("confluent-kafka", bootstrap_servers, group, topic)) as (member,):
        until_shared([member], 2)
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            cluster.commit_offsets(group, {(topic, 0): 1})
        assert rows.run(**options) == [4, 4, 2]
        assert cluster.committed_offsets(group) == {}
    produce(topic, 0, 1, first=10)
    assert rows.run(**options) == [1]
    assert rows.found() == records(topic, 0, range(11))
    assert cluster.committed_offsets(group) == {(topic, 0): 11, (topic, 1): 0}, "the next commit makes up for it"


def test_the_commits_of_groups_can_be_streamed(
    spark: "SparkSession", new_topic: NewTopic, cluster: Cluster, bootstrap_servers: str, tmp_path: Path
) -> None:
    topic = new_topic()
    cluster.commit_offsets(f"seen-{topic}", {(topic, 0): 0}, metadata="mine")
    stream = spark.readStream.format("pylog").option("kafka.bootstrap.servers", bootstrap_servers)
    stream = stream.option("subscribe", "__consumer_offsets").option("startingOffsets", "earliest")
    commits = stream.option("decode", "offsets").schema("group string, offset long, metadata string").load()
    writer = commits.where(commits.group == f"seen-{topic}").writeStream.format("parquet")
    writer = writer.option("path", str(tmp_path / "rows")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "rows")).collect()] == [
        (f"seen-{topic}", 0, "mine")
    ]
