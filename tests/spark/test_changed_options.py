"""A checkpoint and the options of the next run: the query goes on where it was, whatever was changed meanwhile."""

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.support.query_rows import FORMATS, Rows, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.connector

NewTopic = Callable[..., str]
Produce = Callable[..., None]


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


@pytest.mark.usefixtures("at_length")
@FORMATS
@pytest.mark.parametrize(
    ("changed", "tasks"),
    [
        pytest.param({"subscribePattern": "^<topic>$"}, 2, id="a pattern"),
        pytest.param({"assign": '{"<topic>": [0, 1]}'}, 2, id="partitions by number"),
        pytest.param({"subscribe": "<topic>", "minPartitions": "6"}, 6, id="more tasks"),
        pytest.param({"subscribe": "<topic>", "kafka.isolation.level": "read_committed"}, 2, id="committed records"),
    ],
)
def test_a_query_goes_on_where_it_was_however_its_partitions_are_named_and_read_now(
    spark_kafka: "SparkSession",
    rows: Rows,
    new_topic: NewTopic,
    produce: Produce,
    format: str,
    changed: dict[str, str],
    tasks: int,
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 10)
    produce(topic, 1, 10)
    assert rows.run(None, format, subscribe=topic) == [20]
    before = rows.tasks(format)
    produce(topic, 0, 5, first=10)
    produce(topic, 1, 3, first=10)
    assert rows.run(None, format, **{name: text.replace("<topic>", topic) for name, text in changed.items()}) == [8]
    assert rows.found(format) == records(topic, 0, range(15)) + records(topic, 1, range(13))
    assert rows.tasks(format) == before + tasks


@FORMATS
def test_a_query_may_have_headers_from_now_on(
    spark_kafka: "SparkSession",
    rows: Rows,
    new_topic: NewTopic,
    produce: Produce,
    bootstrap_servers: str,
    format: str,
) -> None:
    from confluent_kafka import Producer

    topic = new_topic()
    produce(topic, 0, 2)
    assert rows.run(None, format, subscribe=topic) == [2]
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, b"0/2", headers=[("of", b"mine")])
    assert producer.flush(30) == 0
    rows.shown = "concat(topic, ':', cast(value as string), ' ', headers[0].key, '=', cast(headers[0].value as string))"
    assert rows.run(None, format, subscribe=topic, includeHeaders="true") == [1]
    assert rows.found(format) == records(topic, 0, range(2)) + Counter([f"{topic}:0/2 of=mine"])


@FORMATS
def test_a_partition_that_is_assigned_no_longer_is_a_loss(
    spark_kafka: "SparkSession", rows: Rows, new_topic: NewTopic, produce: Produce, format: str
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, 0, 10)
    produce(topic, 1, 10)
    assert rows.run(None, format, subscribe=topic) == [20]
    produce(topic, 0, 5, first=10)
    produce(topic, 1, 3, first=10)
    only_one = {"assign": json.dumps({topic: [0]})}
    said = rows.failure(format, **only_one)
    if format == "pylog":
        assert f"{topic}-1: the offsets from 10 on are gone" in said
    else:
        assert "data may have been lost" in said
    assert rows.run(None, format, failOnDataLoss="false", **only_one) == [5]
    assert rows.found(format) == records(topic, 0, range(15)) + records(topic, 1, range(10))


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
