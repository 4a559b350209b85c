"""Filters that are pushed down: what need not be read is not, and not a row is missing."""

import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.spark.pushdown import Narrowing, can_be_asked, narrowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)
Log = dict[TopicPartition, list[int]]  # the times of its records


def time(ms: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


class Logs:
    """A cluster with these logs. Where `forgetful`, it says -1 for a time though there are records, as Kafka may."""

    def __init__(self, logs: Log, forgetful: frozenset[TopicPartition] = frozenset()) -> None:
        self._logs = logs
        self._forgetful = forgetful
        self.asked: list[TopicPartition] = []

    def list_offsets(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.asked += partitions
        found = {}
        for place, time_ms in partitions.items():
            assert time_ms > 0, "below, a number means something else to a broker"
            fitting = (offset for offset, found_ms in enumerate(self._logs[place]) if found_ms >= time_ms)
            found[place] = -1 if place in self._forgetful else next(fitting, -1)
        return found

    def newest_times_ms(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: max(self._logs[place]) for place in partitions if self._logs[place]}


def left(filters: list[Filter], logs: Log, **quirks: Any) -> tuple[set[tuple[str, int, int]], list[Filter]]:
    """(topic, partition, offset) of all that would be read, and the filters that Spark is left with."""
    narrowing, rest = narrowed(filters)
    cluster = cast("Cluster", Logs(logs, **quirks))
    start, end = narrowing.apply(cluster, dict.fromkeys(logs, 0), {place: len(log) for place, log in logs.items()})
    assert start.keys() == end.keys()
    return {(*place, offset) for place in end for offset in range(start[place], end[place])}, rest


LOGS: Log = {("a", 0): [1000, 3000, 2000, 4000], ("a", 1): [5000, 1000], ("ab", 0): [-1, 2000], ("b", 0): []}
EVERY = {(*place, offset) for place, log in LOGS.items() for offset in range(len(log))}


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        pytest.param(EqualTo(TOPIC, "a"), lambda t, p, o: t == "a", id="a topic"),
        pytest.param(EqualNullSafe(TOPIC, "a"), lambda t, p, o: t == "a", id="a topic, safe for nulls"),
        pytest.param(Not(EqualTo(TOPIC, "a")), lambda t, p, o: t != "a", id="not a topic"),
        pytest.param(In(TOPIC, ("a", "b")), lambda t, p, o: t in ("a", "b"), id="one of some topics"),
        pytest.param(GreaterThan(TOPIC, "a"), lambda t, p, o: t > "a", id="topics behind"),
        pytest.param(StringStartsWith(TOPIC, "a"), lambda t, p, o: t.startswith("a"), id="how a topic begins"),
        pytest.param(StringEndsWith(TOPIC, "b"), lambda t, p, o: t.endswith("b"), id="how a topic ends"),
        pytest.param(StringContains(TOPIC, "b"), lambda t, p, o: "b" in t, id="what a topic contains"),
        pytest.param(EqualTo(PARTITION, 1), lambda t, p, o: p == 1, id="a partition"),
        pytest.param(LessThanOrEqual(PARTITION, 0), lambda t, p, o: p <= 0, id="partitions up to one"),
        pytest.param(Not(In(PARTITION, (1, 2))), lambda t, p, o: p not in (1, 2), id="other partitions"),
        pytest.param(EqualTo(OFFSET, 1), lambda t, p, o: o == 1, id="an offset"),
        pytest.param(EqualTo(OFFSET, -1), lambda t, p, o: False, id="an offset that never is"),
        pytest.param(GreaterThan(OFFSET, 1), lambda t, p, o: o > 1, id="offsets behind"),
        pytest.param(GreaterThanOrEqual(OFFSET, 1), lambda t, p, o: o >= 1, id="offsets from one on"),
        pytest.param(LessThan(OFFSET, 1), lambda t, p, o: o < 1, id="offsets before"),
        pytest.param(LessThanOrEqual(OFFSET, 1), lambda t, p, o: o <= 1, id="offsets up to one"),
        pytest.param(IsNotNull(OFFSET), lambda t, p, o: True, id="offsets are never null"),
    ],
)
def test_topics_partitions_and_offsets_are_chosen_exactly(one: Filter, wanted: Callable[..., bool]) -> None:
    assert left([one], LOGS) == ({place for place in EVERY if wanted(*place)}, [])


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        pytest.param(
            GreaterThanOrEqual(TIMESTAMP, time(2000)),
            {("a", 0, 1), ("a", 0, 2), ("a", 0, 3), ("a", 1, 0), ("a", 1, 1), ("ab", 0, 1)},
            id="not older than, in disorder",
        ),
        pytest.param(GreaterThan(TIMESTAMP, time(4000)), {("a", 1, 0), ("a", 1, 1)}, id="younger than"),
        pytest.param(GreaterThan(TIMESTAMP, time(3999.999)), {("a", 0, 3), ("a", 1, 0), ("a", 1, 1)}, id="just before"),
        pytest.param(GreaterThanOrEqual(TIMESTAMP, time(4000.001)), {("a", 1, 0), ("a", 1, 1)}, id="just after"),
        pytest.param(EqualTo(TIMESTAMP, time(4000)), {("a", 0, 3), ("a", 1, 0), ("a", 1, 1)}, id="a time"),
        pytest.param(In(TIMESTAMP, (time(9000), time(5000))), {("a", 1, 0), ("a", 1, 1)}, id="one of some times"),
        pytest.param(
            GreaterThanOrEqual(TIMESTAMP, time(5000).astimezone(timezone(timedelta(hours=9)))),
            {("a", 1, 0), ("a", 1, 1)},
            id="a time in another zone",
        ),
        pytest.param(GreaterThanOrEqual(TIMESTAMP, time(0)), EVERY, id="the beginning of all times"),
        pytest.param(GreaterThanOrEqual(TIMESTAMP, time(-2)), EVERY, id="a time that would mean earliest"),
        pytest.param(LessThan(TIMESTAMP, time(2000)), EVERY, id="older than: an older one may always follow"),
        pytest.param(IsNotNull(TIMESTAMP), EVERY, id="a time at all"),
        pytest.param(Not(GreaterThan(TIMESTAMP, time(4000))), EVERY, id="not younger"),
        pytest.param(In(OFFSET, (1, 3)), {place for place in EVERY if 1 <= place[2] <= 3}, id="one of some offsets"),
        pytest.param(EqualTo(TOPIC, None), EVERY, id="null"),
        pytest.param(In(TOPIC, ("a", None)), EVERY, id="null among others"),
        pytest.param(IsNull(TOPIC), EVERY, id="no topic"),
        pytest.param(EqualTo(("key",), b"k"), EVERY, id="a column that is not looked at"),
        pytest.param(EqualTo(("headers", "topic"), "a"), EVERY, id="a field of a column"),
    ],
)
def test_other_filters_are_bounds_at_most_and_spark_looks_again(one: Filter, wanted: set[tuple[str, int, int]]) -> None:
    assert left([one], LOGS) == (wanted, [one])


def test_only_what_may_be_read_is_looked_up() -> None:
    narrowing, _ = narrowed([EqualTo(PARTITION, 0), GreaterThan(OFFSET, 1), GreaterThan(TIMESTAMP, time(1))])
    cluster = Logs(LOGS)
    narrowing.apply(cast("Cluster", cluster), dict.fromkeys(LOGS, 0), {place: len(log) for place, log in LOGS.items()})
    assert cluster.asked == [("a", 0)]


def test_that_there_is_no_such_time_is_not_believed_unless_all_are_older() -> None:
    forgetful = frozenset(LOGS)
    assert left([GreaterThan(TIMESTAMP, time(4500))], LOGS, forgetful=forgetful)[0] == {("a", 1, 0), ("a", 1, 1)}


OPERATORS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda found, values: found in values,
}


def with_value(attribute: tuple[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    plain = st.sampled_from([kind for kind in OPERATORS if kind is not In])
    return st.builds(lambda kind, value: kind(attribute, value), plain, values) | st.builds(
        lambda several: In(attribute, tuple(several)), st.lists(values, min_size=1, max_size=3)
    )


filters = st.lists(
    with_value(TOPIC, st.sampled_from("abc"))
    | with_value(PARTITION, st.integers(-1, 2))
    | with_value(OFFSET, st.integers(-2, 7))
    | with_value(TIMESTAMP, st.integers(-3000, 9000).map(lambda us: time(us / 1000))),
    max_size=4,
)
places = st.tuples(st.sampled_from("ab"), st.integers(0, 1))


@given(st.dictionaries(places, st.lists(st.integers(-1, 9), max_size=6)), filters, st.frozensets(places))
def test_no_row_is_missing_and_none_is_too_many(
    logs: Log, chosen: list[Filter], forgetful: frozenset[TopicPartition]
) -> None:
    def fits(one: Any, row: dict[str, Any]) -> bool:
        return OPERATORS[type(one)](row[one.attribute[0]], one.value)

    def row(topic: str, partition: int, offset: int) -> dict[str, Any]:
        found_ms = logs[topic, partition][offset]
        return {"topic": topic, "partition": partition, "offset": offset, "timestamp": time(found_ms)}

    every = {(*place, offset) for place, log in logs.items() for offset in range(len(log))}
    wanted = {one for one in every if all(fits(condition, row(*one)) for condition in chosen)}
    read, rest = left(chosen, logs, forgetful=forgetful)
    assert {one for one in read if all(fits(condition, row(*one)) for condition in rest)} == wanted


def test_outside_of_sparks_own_process_nothing_is_asked() -> None:
    assert not can_be_asked()
    assert narrowed([]) == (Narrowing(), [])


@pytest.fixture
def pushing(spark: "SparkSession") -> "Any":
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.connector
@pytest.mark.parametrize(
    ("condition", "wanted", "tasks"),
    [
        pytest.param("partition = 1 and offset >= 3", {(1, 3), (1, 4)}, 1, id="a partition from an offset on"),
        pytest.param("topic = 'none'", set(), 1, id="no such topic"),
        pytest.param("offset in (2, 4)", {(0, 2), (0, 4), (1, 2), (1, 4)}, 2, id="some offsets"),
        pytest.param("timestamp > '2023-11-14 22:13:28.5 UTC'", {(0, offset) for offset in range(9, 10)}, 1, id="late"),
        pytest.param(
            "timestamp >= '2023-11-14 22:13:23 UTC' and timestamp < '2023-11-14 22:13:24 UTC'",
            {(0, 3), (1, 3)},
            2,
            id="a second",
        ),
        pytest.param("value = '3' or partition = 0", {(0, n) for n in range(10)} | {(1, 3)}, 2, id="not to be pushed"),
    ],
)
def test_a_session_that_pushes_filters_reads_less_and_the_same(
    pushing: "SparkSession",
    read: "Callable[..., DataFrame]",
    new_topic: Callable[..., str],
    bootstrap_servers: str,
    condition: str,
    wanted: set[tuple[int, int]],
    tasks: int,
) -> None:
    from confluent_kafka import Producer

    topic = new_topic(partitions=2, **{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for partition, count in ((0, 10), (1, 5)):
        for number in range(count):
            seconds = 1_700_000_000 + number
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=seconds * 1000)
    assert producer.flush(30) == 0
    frame = read(topic, pushFilters="true").where(condition)
    assert {tuple(row) for row in frame.select("partition", "offset").collect()} == wanted
    assert frame.rdd.getNumPartitions() == tasks
    pushing.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert {tuple(row) for row in read(topic).where(condition).select("partition", "offset").collect()} == wanted


@pytest.mark.connector
def test_a_frame_that_is_asked_twice_has_all_its_rows_again_though_the_session_pushes_filters(
    pushing: "SparkSession", read: "Callable[..., DataFrame]", new_topic: Callable[..., str], bootstrap_servers: str
) -> None:
    """Spark keeps the reader, and what was pushed to it, for all queries of a frame."""
    from confluent_kafka import Producer

    topic = new_topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(10):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    frame = read(topic)
    assert [frame.where("offset < 3").count(), frame.count(), frame.where("offset > 7").count()] == [3, 10, 2]
