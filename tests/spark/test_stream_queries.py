"""Streams on a real Spark while topics change under them: limits, partitions, topics, retention, groups, options."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from pylog.connector.client.cluster import Cluster
from pylog.connector.spark.offsets import NOTE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.connector

NewTopic = Callable[..., str]
Produce = Callable[..., None]
Start = Callable[..., "StreamingQuery"]

DEADLINE_S = 120
FORMATS = pytest.mark.parametrize("format", ["pylog", "kafka"])  # Spark's own connector does the same
FRESH = {"kafka.metadata.max.age.ms": "100", "fetchOffset.retryIntervalMs": "100"}


class Rows:
    """Where queries of one test put their rows: files, whose sink is exactly-once, so that what is read twice shows."""

    def __init__(self, spark: "SparkSession", servers: str, path: Path) -> None:
        self._spark, self._servers, self._path = spark, servers, path
        self.is_shared = False  # whether both formats go on with one checkpoint

    def _folder(self, what: str, format: str) -> str:
        return str(self._path / (what if self.is_shared else f"{what}-{format}"))

    def start(
        self, trigger: dict[str, Any] | None = None, format: str = "pylog", sink_fails: bool = False, **options: str
    ) -> "StreamingQuery":
        """A run of the test's query: one checkpoint for all of them, per format."""
        stream = self._spark.readStream.format(format).option("kafka.bootstrap.servers", self._servers)
        rows = stream.options(**({"startingOffsets": "earliest"} | options)).load()
        writer = rows.selectExpr("concat(topic, ':', cast(value as string)) value").writeStream
        if sink_fails:
            writer = writer.foreachBatch(_fail)
        else:
            writer = writer.format("parquet").option("path", self._folder("rows", format))
        writer = writer.option("checkpointLocation", self._folder("checkpoint", format))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, trigger: dict[str, Any] | None = None, format: str = "pylog", **options: str) -> list[int]:
        """The rows of each batch of a run that ends by itself."""
        query = self.start(trigger, format, **options)
        assert query.awaitTermination(DEADLINE_S)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def failure(self, format: str = "pylog", sink_fails: bool = False, **options: str) -> str:
        query = self.start(format=format, sink_fails=sink_fails, **options)
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(DEADLINE_S)
        return str(caught.value)

    def found(self, format: str = "pylog") -> Counter[str]:
        rows = self._spark.read.schema("value string").parquet(self._folder("rows", format))
        return Counter(row["value"] for row in rows.collect())


def _fail(batch: object, number: int) -> None:
    raise RuntimeError("this sink fails")


@pytest.fixture
def rows(spark: "SparkSession", bootstrap_servers: str, tmp_path: Path) -> Rows:
    return Rows(spark, bootstrap_servers, tmp_path)


def records(topic: str, partition: int, numbers: range) -> Counter[str]:
    return Counter(f"{topic}:{partition}/{number}" for number in numbers)


def eventually(is_so: Callable[[], bool], query: "StreamingQuery") -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        if (failure := query.exception()) is not None:
            raise failure
        assert time.monotonic() < deadline, query.lastProgress
        query.awaitTermination(0.05)


# Limits


@FORMATS
def test_limits_are_exact_with_each_trigger(
    spark_kafka: "SparkSession", rows: Rows, new_topic: NewTopic, produce: Produce, format: str
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 30)
    produce(topic, 1, 10)
    limits = {"subscribe": topic, "maxOffsetsPerTrigger": "16"}
    assert rows.run({"availableNow": True}, format, **limits) == [16, 16, 8]
    produce(topic, 0, 40, first=30)
    assert rows.run({"once": True}, format, **limits) == [40], "Once takes it all"
    produce(topic, 1, 20, first=10)
    query = rows.start({"processingTime": "0 seconds"}, format, **limits)
    eventually(lambda: len([p for p in query.recentProgress if p["numInputRows"]]) == 2, query)
    query.stop()
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [16, 4]
    assert rows.found(format) == records(topic, 0, range(70)) + records(topic, 1, range(30))


def test_a_limited_query_tells_how_far_behind_it_is(rows: Rows, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic()
    produce(topic, 0, 10)
    query = rows.start(subscribe=topic, maxOffsetsPerTrigger="4")
    assert query.awaitTermination(DEADLINE_S)
    behind = []
    for progress in query.recentProgress:
        (source,) = progress["sources"]
        if progress["numInputRows"]:
            latest, end = json.loads(source["latestOffset"])[topic], json.loads(source["endOffset"])[topic]
            behind.append(latest["0"] - end["0"])
    assert behind == [6, 2, 0]


def test_available_now_ends_where_the_topics_ended_though_data_still_arrives(
    rows: Rows, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, 0, 50)
    going_on = threading.Event()

    def arrive() -> None:
        number = 50
        while not going_on.is_set():
            produce(topic, 0, 5, first=number)
            number += 5

    thread = threading.Thread(target=arrive)
    thread.start()
    try:
        counts = rows.run(subscribe=topic, maxOffsetsPerTrigger="40")
    finally:
        going_on.set()
        thread.join()
    assert all(count == 40 for count in counts[:-1]), counts
    read = sum(counts)
    assert read >= 50
    assert rows.found() == records(topic, 0, range(read))
    rows.run(subscribe=topic)
    total = len(rows.found())
    assert total > read
    assert rows.found() == records(topic, 0, range(total))


def test_bytes_limit_batches_on_spark(
    rows: Rows, new_topic: NewTopic, bootstrap_servers: str, produce: Produce
) -> None:
    from confluent_kafka import Producer

    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(40):
        producer.produce(topic, f"0/{number}".encode().ljust(10_000))
    assert producer.flush(30) == 0
    counts = rows.run(subscribe=topic, maxBytesPerTrigger="150000")
    assert sum(counts) == 40
    assert all(13 <= count <= 15 for count in counts[:-1]), counts
    produce(topic, 0, 30, first=40)
    assert rows.run({"once": True}, subscribe=topic, maxBytesPerTrigger="100") == [30]


@FORMATS
def test_a_least_number_puts_batches_off_on_spark(
    spark_kafka: "SparkSession", rows: Rows, new_topic: NewTopic, produce: Produce, format: str
) -> None:
    topic = new_topic()
    produce(topic, 0, 1)
    least = {"subscribe": topic, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    query = rows.start({"processingTime": "0 seconds"}, format, **least)

    def counts() -> list[int]:
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    eventually(lambda: counts() == [1], query)  # the first does not wait
    for number in range(1, 24):
        produce(topic, 0, 1, first=number)
    eventually(lambda: sum(counts()) >= 11, query)
    query.stop()
    assert all(count >= 10 for count in counts()[1:]), counts()


@FORMATS
def test_a_batch_of_too_few_comes_when_the_delay_is_over(
    spark_kafka: "SparkSession", rows: Rows, new_topic: NewTopic, produce: Produce, format: str
) -> None:
    topic = new_topic()
    produce(topic, 0, 1)
    least = {"subscribe": topic, "minOffsetsPerTrigger": "1000", "maxTriggerDelay": "5s"}
    query = rows.start({"processingTime": "0 seconds"}, format, **least)

    def batches() -> list[dict[str, Any]]:
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    eventually(lambda: len(batches()) == 1, query)  # the first does not wait
    produce(topic, 0, 3, first=1)
    eventually(lambda: len(batches()) == 2, query)
    query.stop()
    first, second = batches()
    assert (first["numInputRows"], second["numInputRows"]) == (1, 3)
    began = [datetime.fromisoformat(progress["timestamp"]) for progress in (first, second)]
    assert (began[1] - began[0]).total_seconds() >= 4.5, "a trigger begins a little before it is decided"


# Partitions and topics that come and go


@FORMATS
def test_a_running_query_finds_new_partitions_and_new_topics_of_its_pattern(
    spark_kafka: "SparkSession",
    rows: Rows,
    new_topic: NewTopic,
    produce: Produce,
    add_partitions: Callable[[str, int], None],
    cluster: Cluster,
    format: str,
) -> None:
    topic = new_topic()
    other = f"{topic}-other"
    produce(topic, 0, 3)
    query = rows.start({"processingTime": "0 seconds"}, format, subscribePattern=f"^{topic}", **FRESH)
    eventually(lambda: rows.found(format) == records(topic, 0, range(3)), query)
    add_partitions(topic, 2)
    produce(topic, 1, 4)
    cluster.create_topic(other, 1, 1)
    produce(other, 0, 5)
    expected = records(topic, 0, range(3)) + records(topic, 1, range(4)) + records(other, 0, range(5))
    eventually(lambda: rows.found(format) == expected, query)
    query.stop()
    produce(topic, 1, 2, first=4)
    assert rows.run(None, format, subscribePattern=f"^{topic}", **FRESH) == [2]
    assert rows.found(format) == expected + records(topic, 1, range(4, 6))


def test_a_topic_made_anew_under_a_query_and_between_two_runs_is_found_out(
    rows: Rows, new_topic: NewTopic, produce: Produce, cluster: Cluster
) -> None:
    topic = new_topic()
    produce(topic, 0, 5)
    options = {"subscribe": topic, **FRESH}
    query = rows.start({"processingTime": "0 seconds"}, failOnDataLoss="false", **options)
    eventually(lambda: len(rows.found()) == 5, query)
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 8, first=100)  # longer than what was read: only its id tells
    eventually(lambda: rows.found() == records(topic, 0, range(5)) + records(topic, 0, range(100, 108)), query)
    query.stop()
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 9, first=200)
    said = rows.failure(**options)
    assert f"{topic}-0: the offsets from 8 on are gone: the topic '{topic}' was deleted and made anew" in said
    assert rows.run(failOnDataLoss="false", **options) == [9]
    assert sum(rows.found().values()) == 5 + 8 + 9


@FORMATS
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_topic_deleted_between_two_runs_fails_the_query_or_is_left_out(
    rows: Rows, new_topic: NewTopic, produce: Produce, cluster: Cluster, fail_on_data_loss: str, format: str
) -> None:
    kept, gone = new_topic(), new_topic()
    produce(kept, 0, 5)
    produce(gone, 0, 7)
    options = {"subscribe": f"{kept},{gone}", "failOnDataLoss": fail_on_data_loss, **FRESH}
    assert sum(rows.run(None, format, **options)) == 12
    cluster.delete_topic(gone)
    produce(kept, 0, 3, first=5)
    if format == "kafka":  # whatever the option says: docs/source.md has the difference
        assert "UnknownTopicOrPartitionException" in rows.failure(format, **options)
    elif fail_on_data_loss == "true":
        assert f"{gone}-0: the offsets from 7 on are gone: the topic '{gone}' does not exist" in rows.failure(**options)
    else:
        assert rows.run(**options) == [3]
        assert rows.found() == records(kept, 0, range(8)) + records(gone, 0, range(7))


def test_a_first_batch_that_failed_is_run_again_though_starting_offsets_fit_no_more(
    rows: Rows, new_topic: NewTopic, produce: Produce, add_partitions: Callable[[str, int], None]
) -> None:
    topic = new_topic()
    produce(topic, 0, 10)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 3}}), **FRESH}
    assert "this sink fails" in rows.failure(sink_fails=True, **options)
    add_partitions(topic, 2)
    produce(topic, 1, 4)
    assert rows.run(**options) == [7, 4]
    assert rows.found() == records(topic, 0, range(3, 10)) + records(topic, 1, range(4))


@FORMATS
def test_retention_that_overtakes_a_query_fails_it_or_is_stepped_over(
    rows: Rows, new_topic: NewTopic, produce: Produce, delete_records: Callable[[str, int, int], None], format: str
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 10)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "6", **FRESH}
    assert rows.run(None, format, **options) == [6, 4]
    produce(topic, 0, 30, first=10)
    produce(topic, 1, 5)
    delete_records(topic, 0, 25)
    said = rows.failure(format, **options)
    if format == "pylog":
        assert f"{topic}-0: the offsets [10, 25) are gone: the log starts at 25 now" in said
        assert "set failOnDataLoss to false" in said
    else:
        assert "failOnDataLoss" in said
    assert sum(rows.run(None, format, failOnDataLoss="false", **options)) == 20
    assert rows.found(format) == (
        records(topic, 0, range(10)) + records(topic, 0, range(25, 40)) + records(topic, 1, range(5))
    )


# Options that changed between two runs


@FORMATS
def test_a_checkpoint_knows_better_than_changed_options(
    spark_kafka: "SparkSession", rows: Rows, new_topic: NewTopic, produce: Produce, format: str
) -> None:
    one, other = new_topic(), new_topic()
    produce(one, 0, 10)
    produce(other, 0, 4)
    assert rows.run(None, format, subscribe=one, maxOffsetsPerTrigger="10") == [10]
    produce(one, 0, 6, first=10)
    changed = {"subscribe": f"{one},{other}", "startingOffsets": "latest", "maxOffsetsPerTrigger": "5"}
    assert rows.run(None, format, **changed) == [5, 5], "the new topic from its first offset, in the new limit"
    said = rows.failure(format, subscribe=other)
    if format == "pylog":
        assert f"{one}-0: the offsets from 16 on are gone: the topic is there, but this query does not read it" in said
    else:
        assert "data may have been lost" in said
    produce(other, 0, 1, first=4)
    assert rows.run(None, format, subscribe=other, failOnDataLoss="false") == [1]
    assert rows.found(format) == records(one, 0, range(16)) + records(other, 0, range(5))


def test_a_query_of_sparks_own_connector_goes_on_here_with_its_checkpoint(
    spark_kafka: "SparkSession", rows: Rows, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 10)
    rows.is_shared = True
    assert rows.run(format="kafka", subscribe=topic) == [10]
    produce(topic, 0, 3, first=10)
    produce(topic, 1, 4)
    assert rows.run(subscribe=topic) == [7]
    assert rows.found() == records(topic, 0, range(13)) + records(topic, 1, range(4))


# Groups


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
