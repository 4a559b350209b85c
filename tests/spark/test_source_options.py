"""What is read, option by option, by our source and by Spark's Kafka connector: the same rows, the same refusals."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from pylog.connector.client.cluster import Cluster
from pylog.connector.spark import batch_source
from pylog.connector.spark.batch_source import BatchReader
from pylog.connector.spark.option_rows import Taker
from pylog.connector.spark.options import source_options
from pylog.connector.spark.schema import source_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

T0_MS = 1_700_000_000_000
STREAM_SECONDS_MAX = 120
FORMATS = ["pylog", "kafka"]
ALL = {("A", 0): range(10), ("A", 1): range(5)}


class Filled(NamedTuple):
    """Topics `A` (2 partitions: 10 records and 5, a second apart), `B` (1: 3 records) and `C` (1: none), under names
    that no other test has."""

    names: dict[str, str]

    def named(self, text: str) -> str:
        for name, topic in self.names.items():
            text = text.replace(f"<{name}>", topic)
        return text


@pytest.fixture(scope="module")
def filled(bootstrap_servers: str, cluster: Cluster) -> Iterator[Filled]:
    from confluent_kafka import Producer

    prefix = f"options-{uuid.uuid4().hex[:8]}"
    names = {name: f"{prefix}-{name}" for name in "ABC"}
    for name, topic in names.items():
        cluster.create_topic(topic, 2 if name == "A" else 1, 1, configs={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for name, partition, count in (("A", 0, 10), ("A", 1, 5), ("B", 0, 3)):
        for number in range(count):
            producer.produce(names[name], b"%d" % number, partition=partition, timestamp=T0_MS + 1000 * number)
    assert producer.flush(30) == 0
    yield Filled({**names, "prefix": prefix})
    for topic in names.values():
        cluster.delete_topic(topic)


@pytest.fixture
def load(
    request: pytest.FixtureRequest, spark: "SparkSession", bootstrap_servers: str, filled: Filled
) -> "Callable[..., DataFrame]":
    """`load(format, options)`: what stands in angle brackets is the name of a topic; `<A>` is read if nothing else."""

    def load(format: str, options: dict[str, str], *, stream: bool = False) -> "DataFrame":
        if format == "kafka":
            request.getfixturevalue("spark_kafka")
        named = {name: filled.named(text) for name, text in options.items()}
        if not named.keys() & {"subscribe", "subscribePattern", "assign"}:
            named["subscribe"] = filled.names["A"]
        named["kafka.bootstrap.servers"] = bootstrap_servers
        return (spark.readStream if stream else spark.read).format(format).options(**named).load()

    return load


def places(ranges: dict[tuple[str, int], range], filled: Filled) -> list[tuple[str, int, int]]:
    return sorted(
        (filled.names[topic], partition, offset) for (topic, partition), offsets in ranges.items() for offset in offsets
    )


def found(frame: "DataFrame") -> list[tuple[str, int, int]]:
    return sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect())


def by_partition(numbers: dict[tuple[str, int], int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), number in numbers.items():
        topics.setdefault(f"<{topic}>", {})[str(partition)] = number
    return json.dumps(topics)


def offsets(first: int, second: int) -> str:
    return by_partition({("A", 0): first, ("A", 1): second})


def times(first_s: float, second_s: float) -> str:
    return by_partition({("A", 0): T0_MS + int(1000 * first_s), ("A", 1): T0_MS + int(1000 * second_s)})


def at(seconds: float) -> str:
    return str(T0_MS + int(1000 * seconds))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({"subscribe": " <A> , <B>,<C>"}, {**ALL, ("B", 0): range(3)}, id="several topics"),
        pytest.param({"subscribePattern": "<prefix>-[AB]"}, {**ALL, ("B", 0): range(3)}, id="a pattern"),
        pytest.param({"subscribePattern": "x-B$"}, {}, id="a pattern that nothing fits"),
        pytest.param({"subscribePattern": " <prefix> "}, {**ALL, ("B", 0): range(3)}, id="found anywhere in the name"),
        pytest.param({"assign": '{"<A>": [1], "<B>": [0]}'}, {("A", 1): range(5), ("B", 0): range(3)}, id="assign"),
        pytest.param({"assign": '{"<A>": [1, 7]}'}, {("A", 1): range(5)}, id="assign a partition that is not there"),
        pytest.param({"startingOffsets": "EARLIEST"}, ALL, id="from earliest, in capitals"),
        pytest.param(
            {"startingOffsets": offsets(4, -2), "endingOffsets": offsets(8, -1)},
            {("A", 0): range(4, 8), ("A", 1): range(5)},
            id="offsets",
        ),
        pytest.param({"STARTINGoffsets": offsets(10, 5)}, {}, id="offsets at the end"),
        pytest.param(
            {"startingTimestamp": at(2.5), "endingTimestamp": at(7)},
            {("A", 0): range(3, 7), ("A", 1): range(3, 5)},
            id="one time for all",
        ),
        pytest.param(
            {"startingTimestamp": at(2), "endingTimestamp": at(2)}, {}, id="from a time to the same time is nothing"
        ),
        pytest.param({"startingTimestamp": "0", "endingTimestamp": at(99)}, ALL, id="times before and after all"),
        pytest.param(
            {"startingOffsetsByTimestamp": times(9, 0), "endingOffsetsByTimestamp": times(99, 3)},
            {("A", 0): range(9, 10), ("A", 1): range(3)},
            id="times, each its own",
        ),
        pytest.param(
            {
                "startingTimestamp": at(3),
                "startingOffsetsByTimestamp": times(0, 0),
                "startingOffsets": "latest",
                "endingTimestamp": at(4),
                "endingOffsetsByTimestamp": times(0, 0),
                "endingOffsets": "earliest",
            },
            {("A", 0): range(3, 4), ("A", 1): range(3, 4)},
            id="one time comes first",
        ),
        pytest.param(
            {"startingOffsetsByTimestamp": times(1, 1), "startingOffsets": "latest", "endingOffsets": offsets(2, 3)},
            {("A", 0): range(1, 2), ("A", 1): range(1, 3)},
            id="times come before offsets",
        ),
        pytest.param(
            {"startingTimestamp": at(7), "startingOffsetsByTimestampStrategy": "latest"},
            {("A", 0): range(7, 10)},
            id="no record so young: latest",
        ),
        pytest.param({"minPartitions": "7"}, ALL, id="in more pieces than partitions"),
        pytest.param({"maxRecordsPerPartition": "4"}, ALL, id="in small pieces"),
        pytest.param({"maxRecordsPerPartition": "4", "minPartitions": "9"}, ALL, id="in many small pieces"),
        pytest.param(
            {"failOnDataLoss": "false", "startingOffsets": offsets(-2, 3)},
            {("A", 0): range(10), ("A", 1): range(3, 5)},
            id="nothing lost, with failOnDataLoss=false",
        ),
        pytest.param({"kafka.isolation.level": "read_committed"}, ALL, id="only what is committed"),
        pytest.param({"kafka.group.id": "readers", "kafka.client.id": "me"}, ALL, id="the client's own"),
        pytest.param(
            {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "0", "kafkaConsumer.pollTimeoutMs": "9000"},
            ALL,
            id="patience",
        ),
    ],
)
def test_a_batch_has_the_rows_that_its_options_say(
    load: "Callable[..., DataFrame]", filled: Filled, format: str, options: dict[str, str], wanted: Any
) -> None:
    assert found(load(format, options)) == places(wanted, filled)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({"startingOffsets": "earliest"}, ALL, id="from earliest"),
        pytest.param({}, {}, id="from latest"),
        pytest.param({"startingOffsets": offsets(4, -1)}, {("A", 0): range(4, 10)}, id="from offsets"),
        pytest.param(
            {"subscribePattern": "<prefix>-[BC]", "startingOffsets": "earliest"}, {("B", 0): range(3)}, id="a pattern"
        ),
        pytest.param(
            {"assign": '{"<A>": [1, 7]}', "startingOffsets": "earliest"}, {("A", 1): range(5)}, id="partitions"
        ),
        pytest.param(
            {"startingTimestamp": at(3), "startingOffsets": "latest"},
            {("A", 0): range(3, 10), ("A", 1): range(3, 5)},
            id="from a time",
        ),
        pytest.param(
            {"startingOffsetsByTimestamp": times(8, 99), "startingOffsetsByTimestampStrategy": "latest"},
            {("A", 0): range(8, 10)},
            id="from times, where there are such",
        ),
        pytest.param({"startingOffsets": "earliest", "minPartitions": "6"}, ALL, id="in many tasks"),
        pytest.param({"startingOffsets": "earliest", "maxRecordsPerPartition": "2"}, ALL, id="in small tasks"),
    ],
)
def test_a_new_stream_has_the_rows_that_its_options_say(
    load: "Callable[..., DataFrame]", filled: Filled, format: str, options: dict[str, str], wanted: Any
) -> None:
    rows: list[tuple[str, int, int]] = []

    def keep(batch: "DataFrame", _: int) -> None:
        tasks.append(batch.rdd.getNumPartitions())
        rows.extend(found(batch))

    tasks: list[int] = []
    query = load(format, options, stream=True).writeStream.foreachBatch(keep).trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_SECONDS_MAX)
    assert sorted(rows) == places(wanted, filled)
    if "minPartitions" in options:
        assert max(tasks) == 6
    if "maxRecordsPerPartition" in options:
        assert max(tasks) == 8


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        pytest.param({}, 2, id="as many as partitions"),
        pytest.param({"minPartitions": "2"}, 2, id="no more than there are"),
        pytest.param({"minPartitions": "3"}, 3, id="one more"),
        pytest.param({"minPartitions": "6"}, 6, id="three times as many"),
        pytest.param({"minPartitions": "15"}, 15, id="one for each record"),
        pytest.param({"minPartitions": "99"}, 15, id="never an empty one"),
        pytest.param(
            {"startingOffsets": offsets(0, 0), "endingOffsets": offsets(10, 5), "maxRecordsPerPartition": "4"},
            5,
            id="four records at most",
        ),
        pytest.param(
            {
                "startingOffsets": offsets(0, 0),
                "endingOffsets": offsets(10, 5),
                "maxRecordsPerPartition": "4",
                "minPartitions": "3",
            },
            5,
            id="enough already",
        ),
    ],
)
def test_ranges_are_split_into_so_many_tasks(
    load: "Callable[..., DataFrame]", filled: Filled, format: str, options: dict[str, str], tasks: int
) -> None:
    frame = load(format, options)
    assert frame.rdd.getNumPartitions() == tasks
    assert found(frame) == places(ALL, filled)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("options", "name", "theirs"),
    [
        pytest.param({"subscribe": "<A>", "assign": '{"<A>":[0]}'}, "assign", "Only one of", id="two ways to choose"),
        pytest.param({"subscribe": ","}, "subscribe", "No topics to subscribe to", id="no topic"),
        pytest.param({"subscribePattern": "  "}, "subscribePattern", "Pattern to subscribe is empty", id="no pattern"),
        pytest.param({"subscribePattern": "<A>("}, "subscribePattern", "Unclosed group", id="a bad pattern"),
        pytest.param({"assign": "<A>"}, "assign", "No topicpartitions to assign", id="assign no JSON"),
        pytest.param({"startingOffsets": "latest"}, "startingOffsets", "can't be latest", id="from latest"),
        pytest.param({"endingOffsets": "earliest"}, "endingOffsets", "can't be earliest", id="to earliest"),
        pytest.param({"startingOffsets": offsets(0, -1)}, "startingOffsets", "can't be latest", id="from -1"),
        pytest.param({"endingOffsets": offsets(0, -2)}, "endingOffsets", "can't be earliest", id="to -2"),
        pytest.param(
            {"startingOffsets": by_partition({("A", 0): 1})},
            "startingOffsets",
            "match what are assigned",
            id="a partition left out",
        ),
        pytest.param(
            {"startingOffsets": offsets(5, 0), "endingOffsets": offsets(4, 5)},
            "startingOffsets",
            "the end offset 4",
            id="end before start",
        ),
        pytest.param(
            {"startingOffsetsByTimestamp": times(5, 0), "endingOffsetsByTimestamp": times(4, 5)},
            "startingOffsetsByTimestamp",
            "the end timestamp",
            id="an end in time before its start",
        ),
        pytest.param(
            {"startingOffsetsByTimestamp": by_partition({("A", 0): T0_MS})},
            "startingOffsetsByTimestamp",
            "match what are assigned",
            id="a partition without its time",
        ),
        pytest.param(
            {"startingTimestamp": at(4), "endingTimestamp": at(2)},
            "startingTimestamp",
            "greater than the resolved end offset 2",
            id="a time after the last one",
        ),
        pytest.param({"startingTimestamp": at(7)}, "startingTimestamp", "No offset", id="no record is so young"),
        pytest.param({"startingTimestamp": "yesterday"}, "startingTimestamp", "a single long", id="no time"),
        pytest.param(
            {"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "earliest"},
            "startingOffsetsByTimestampStrategy",
            "No value found for 'EARLIEST'",
            id="no such strategy",
        ),
        pytest.param({"minPartitions": "0"}, "minPartitions", "minPartitions must be positive", id="no tasks"),
        pytest.param({"minPartitions": "many"}, "minPartitions", 'For input string: "many"', id="tasks, but no number"),
        pytest.param({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition", "must be positive", id="no records"),
        pytest.param(
            {"kafka.auto.offset.reset": "latest"}, "auto.offset.reset", "not supported", id="Spark settles offsets"
        ),
        pytest.param(
            {"kafka.enable.auto.commit": "true"}, "enable.auto.commit", "not supported", id="Spark settles commits"
        ),
        pytest.param({"kafka.interceptor.classes": "X"}, "interceptor.classes", "not supported", id="no interceptors"),
        pytest.param({"kafka.value.deserializer": "X"}, "value.deserializer", "not supported", id="values are bytes"),
        pytest.param({"failOnDataLoss": "maybe"}, "failOnDataLoss", '"maybe"', id="neither true nor false"),
    ],
)
def test_both_refuse_and_ours_names_the_option(
    load: "Callable[..., DataFrame]", format: str, options: dict[str, str], name: str, theirs: str
) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - of many classes, on both sides of the JVM
        load(format, options).collect()
    assert (name if format == "pylog" else theirs) in str(refused.value)


@pytest.mark.parametrize("format", FORMATS)
def test_offsets_that_retention_took_are_a_loss_or_left_out(
    request: pytest.FixtureRequest,
    read: "Callable[..., DataFrame]",
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    delete_records: Callable[..., None],
    format: str,
) -> None:
    if format == "kafka":
        request.getfixturevalue("spark_kafka")
    topic = new_topic()
    produce(topic, 0, 10)
    delete_records(topic, 0, 4)
    assert read(topic, format=format).count() == 6
    gone = {"startingOffsets": json.dumps({topic: {"0": 1}}), "endingOffsets": json.dumps({topic: {"0": 7}})}
    assert read(topic, format=format, failOnDataLoss="false", **gone).count() == 3
    with pytest.raises(Exception) as refused:  # noqa: PT011 - of many classes, on both sides of the JVM
        read(topic, format=format, **gone).count()
    ours, theirs = f"{topic}-0: the offsets [1, 4) are gone: the log starts at 4 now", "is out of range"
    assert (ours if format == "pylog" else theirs) in str(refused.value)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("options", "name", "theirs"),
    [
        pytest.param({"endingOffsets": "latest"}, "endingOffsets", "ending offset not valid", id="an end"),
        pytest.param(
            {"endingOffsetsByTimestamp": times(5, 5)}, "endingOffsetsByTimestamp", "not valid", id="an end in time"
        ),
        pytest.param(
            {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger",
            "is higher than the maxOffsetsPerTrigger",
            id="a least above the most",
        ),
        pytest.param({"startingTimestamp": at(99)}, "startingTimestamp", "No offset", id="no record is so young"),
        pytest.param(
            {"startingOffsets": by_partition({("A", 0): 1})},
            "startingOffsets",
            "specify all",
            id="a partition left out",
        ),
        pytest.param({"startingOffsets": "middle"}, "startingOffsets", "Expected e.g.", id="no such place"),
        pytest.param(
            {"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, "maxTriggerDelay", "time string", id="no duration"
        ),
    ],
)
def test_both_refuse_such_a_stream_and_ours_names_the_option(
    load: "Callable[..., DataFrame]", format: str, options: dict[str, str], name: str, theirs: str
) -> None:
    def run() -> None:
        stream = load(format, options, stream=True).writeStream.format("noop").trigger(availableNow=True)
        stream.start().awaitTermination(STREAM_SECONDS_MAX)

    with pytest.raises(Exception) as refused:  # noqa: PT011 - of many classes, on both sides of the JVM
        run()
    assert (name if format == "pylog" else theirs) in str(refused.value)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        pytest.param({"subscribbe": "x"}, "did you mean subscribe", id="a slip"),
        pytest.param({"maxOffsetsPerTrigger": "1"}, "maxOffsetsPerTrigger", id="a stream's limit"),
        pytest.param({"minOffsetsPerTrigger": "1"}, "minOffsetsPerTrigger", id="a stream's least"),
        pytest.param({"groupIdPrefix": "mine"}, "groupIdPrefix", id="the name of a group without commits"),
    ],
)
def test_what_has_no_effect_is_ignored_there_and_refused_here(
    load: "Callable[..., DataFrame]", filled: Filled, options: dict[str, str], name: str
) -> None:
    assert found(load("kafka", options)) == places(ALL, filled)
    with pytest.raises(Exception, match=name):
        load("pylog", options).collect()


def test_an_internal_topic_is_read_here_and_not_there(load: "Callable[..., DataFrame]", cluster: Cluster) -> None:
    cluster.commit_offsets("some-group", {(cluster.topic_names()[0], 0): 0})
    rows = {format: load(format, {"subscribe": "__consumer_offsets"}).count() for format in FORMATS}
    assert rows["kafka"] == 0 < rows["pylog"]


def test_records_of_a_task_are_limited_here_though_the_offsets_of_the_batch_are_not_given(
    load: "Callable[..., DataFrame]",
) -> None:
    tasks = {format: load(format, {"maxRecordsPerPartition": "4"}).rdd.getNumPartitions() for format in FORMATS}
    assert tasks == {"pylog": 5, "kafka": 2}


def test_a_time_below_0_is_a_place_there_and_refused_here(load: "Callable[..., DataFrame]", filled: Filled) -> None:
    assert found(load("kafka", {"startingTimestamp": "-2"})) == places(ALL, filled)
    with pytest.raises(Exception, match="startingTimestamp must be"):
        load("pylog", {"startingTimestamp": "-2"})


def test_a_batch_splits_large_ranges_of_itself_but_not_into_any_number_of_tasks(
    monkeypatch: pytest.MonkeyPatch, bootstrap_servers: str, filled: Filled
) -> None:
    def sizes(**given: str) -> list[int]:
        servers = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": filled.names["A"]}
        reader = BatchReader(source_options(servers | given, Taker.BATCH), source_schema(False))
        return [partition.value.size for partition in reader.partitions()]

    monkeypatch.setattr(batch_source, "TASK_OFFSETS_MAX", 4)
    assert sizes() == [3, 3, 4, 2, 3]
    assert sizes(minPartitions="1") == [10, 5]
    assert sizes(maxRecordsPerPartition="9") == [5, 5, 5]
    monkeypatch.setattr(batch_source, "TASKS_MAX", 3)
    assert sizes() == [5, 5, 5]
