"""Streams on a real Spark while topics change under them: limits, partitions, topics, retention."""

import json
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pylog.connector.client.cluster import Cluster
from tests.support.query_rows import DEADLINE_S, FORMATS, FRESH, Rows, eventually, failing_sink, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.connector

NewTopic = Callable[..., str]
Produce = Callable[..., None]


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
    rows: Rows, new_topic: NewTopic, produce: Produce, either: str
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
        counts = rows.run(None, either, subscribe=topic, maxOffsetsPerTrigger="40")
    finally:
        going_on.set()
        thread.join()
    assert all(count == 40 for count in counts[:-1]), counts
    read = sum(counts)
    assert read >= 50
    assert rows.found(either) == records(topic, 0, range(read))
    rows.run(None, either, subscribe=topic)
    total = len(rows.found(either))
    assert total > read
    assert rows.found(either) == records(topic, 0, range(total))


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


def test_sparks_connector_takes_a_topic_made_anew_for_the_old_one_unless_it_is_shorter(
    spark_kafka: "SparkSession", rows: Rows, new_topic: NewTopic, produce: Produce, cluster: Cluster
) -> None:
    """The difference that docs/source.md tells."""
    topic = new_topic()
    produce(topic, 0, 5)
    assert rows.run(None, "kafka", subscribe=topic) == [5]
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 8, first=100)
    assert rows.run(None, "kafka", subscribe=topic) == [3]
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    produce(topic, 0, 2, first=200)
    assert "data may have been lost" in rows.failure("kafka", subscribe=topic)
    assert rows.run(None, "kafka", subscribe=topic, failOnDataLoss="false") == []
    produce(topic, 0, 1, first=202)
    assert rows.run(None, "kafka", subscribe=topic) == [1]
    assert rows.found("kafka") == (
        records(topic, 0, range(5)) + records(topic, 0, range(105, 108)) + records(topic, 0, range(202, 203))
    )


@FORMATS
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_topic_deleted_between_two_runs_fails_the_query_or_is_left_out(
    spark_kafka: "SparkSession",
    rows: Rows,
    new_topic: NewTopic,
    produce: Produce,
    cluster: Cluster,
    fail_on_data_loss: str,
    format: str,
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
    assert "this sink fails" in rows.failure(sink=failing_sink, **options)
    add_partitions(topic, 2)
    produce(topic, 1, 4)
    assert rows.run(**options) == [7, 4]
    assert rows.found() == records(topic, 0, range(3, 10)) + records(topic, 1, range(4))


@FORMATS
def test_retention_that_overtakes_a_query_fails_it_or_is_stepped_over(
    spark_kafka: "SparkSession",
    rows: Rows,
    new_topic: NewTopic,
    produce: Produce,
    delete_records: Callable[[str, int, int], None],
    format: str,
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
