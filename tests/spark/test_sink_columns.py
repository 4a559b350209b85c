"""The columns of the sink beside those of Spark's own: what one takes or refuses, the other does too, and where they
differ (docs/sink.md) a test says so."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.support.spark_errors import failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

Read = Callable[..., "DataFrame"]
Write = Callable[..., None]
NewTopic = Callable[..., str]

HEADERS = "headers array<struct<key:string,value:binary>>"
TIME_MS = 1_700_000_000_123
LONG_AGO = f"timestamp_millis({TIME_MS}) timestamp"


def placed(rows: "DataFrame") -> list[tuple[Any, ...]]:
    """(partition, key, value, headers) of every row; the order among partitions is nobody's."""
    found = rows.orderBy("partition", "offset").select("partition", "key", "value", "headers").collect()
    return [
        (
            row["partition"],
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            None if row["headers"] is None else [(one[0], one[1] and bytes(one[1])) for one in row["headers"]],
        )
        for row in found
    ]


# What is written


def test_keys_and_values_are_text_or_bytes_and_may_be_null(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, either: str
) -> None:
    topic = new_topic()
    rows = spark.sql(
        "select cast(key as binary) key, cast(value as binary) value from values "
        "('kä', 'vé'), ('', ''), (null, 'alone'), ('tombstone', null), (null, null) as t(key, value)"
    ).coalesce(1)
    for key, value in (("string", "string"), ("binary", "binary"), ("string", "binary")):
        write(rows.selectExpr(f"cast(key as {key}) key", f"cast(value as {value}) value"), topic, format=either)
    once = [("kä".encode(), "vé".encode()), (b"", b""), (None, b"alone"), (b"tombstone", None), (None, None)]
    assert [row[1:3] for row in placed(read(topic, includeHeaders="true"))] == once * 3


ROWS = [
    ("by its key", "k1", 0, None, None),
    ("by its key, again", "k1", 0, None, []),
    ("where it says, though it has a key", "k1", 0, 2, [("h", b"x"), ("h", b""), ("n", None)]),
    ("where it says", None, 0, 0, [("", b"\x00\xff")]),
    ("in the other topic", "k1", 1, 1, None),
    ("in the other topic, by its key", "k2", 1, None, [("ä", b"y")]),
    (None, "nothing but a key", 0, None, None),
]


def test_a_row_says_its_topic_partition_and_headers(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, either: str
) -> None:
    topics = [new_topic(partitions=3) for _ in range(2)]
    rows = [(value, key, topics[number], partition, headers) for value, key, number, partition, headers in ROWS]
    frame = spark.createDataFrame(rows, f"value string, key string, topic string, partition int, {HEADERS}").coalesce(1)
    write(frame, format=either)
    for number, topic in enumerate(topics):
        found = placed(read(topic, includeHeaders="true"))
        by_value = {value: (partition, key, headers) for partition, key, value, headers in found}
        assert len(found) == len(by_value) == sum(row[2] == number for row in ROWS)
        for value, key, _, partition, headers in (row for row in ROWS if row[2] == number):
            place = by_value[value and value.encode()]
            assert place[1:] == (key and key.encode(), headers or None), value
            assert partition in (place[0], None), value
        if number == 0:
            assert by_value[b"by its key"][0] == by_value[b"by its key, again"][0]
            assert [value for _, _, value, _ in found if value and value.startswith(b"by its key")] == [
                b"by its key",
                b"by its key, again",
            ]


def test_the_topic_option_wins_whatever_the_column_is(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, either: str
) -> None:
    topic = new_topic()
    for column in ("'elsewhere'", "cast(null as string)", "42", "array('a')"):
        write(spark.sql(f"select 'v' value, {column} topic"), f" {topic} ", format=either)  # spaces are not its name
    assert read(topic).count() == 4


def test_other_columns_are_left_out(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, either: str
) -> None:
    topic = new_topic()
    extra = [
        "1.5 price",
        "date'2024-02-29' day",
        "timestamp_ntz'2024-02-29 12:00:00' at",
        "map('a', 1) tags",
        "named_struct('x', 1) nested",
        "cast(1.25 as decimal(10, 2)) amount",
        "null nothing",
        "'left' Key, 'out' VALUE",  # names are taken as they are written
        "7L offset, 0 timestampType",
    ]
    write(spark.sql(f"select 'v' value, {', '.join(extra)}"), topic, format=either)
    assert placed(read(topic, includeHeaders="true")) == [(0, None, b"v", None)]


@pytest.mark.parametrize("column", ["make_interval(1, 2)", "interval 3 months"])
def test_other_columns_of_types_that_no_sink_has_must_be_dropped(
    spark: "SparkSession", new_topic: NewTopic, write: Write, either: str, column: str
) -> None:
    rows = spark.sql(f"select 'v' value, {column} extra")
    assert "interval" in failure(lambda: write(rows, new_topic(), format=either)).lower()


@pytest.mark.parametrize("column", [LONG_AGO, "cast(null as timestamp) timestamp", f"{TIME_MS}L timestamp"])
def test_only_ours_writes_a_timestamp(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, either: str, column: str
) -> None:
    topic = new_topic()
    rows = spark.sql(f"select 'v' value, {column}")
    if either == "pylog" and column.endswith("L timestamp"):
        said = failure(lambda: write(rows, topic, format=either))
        assert "the column timestamp must be timestamp, not bigint: cast it" in said
        return
    (before,) = spark.sql("select unix_millis(current_timestamp())").first()  # type: ignore[misc]
    write(rows, topic, format=either)
    ((time_ms,),) = read(topic).selectExpr("unix_millis(timestamp)").collect()
    kept = either == "pylog" and column == LONG_AGO
    assert time_ms == TIME_MS if kept else time_ms >= before


# What is refused

REFUSED = [
    pytest.param("key string", ["value"], id="no value"),
    pytest.param("Value string", ["value"], id="no value in this case"),
    pytest.param("value int", ["value", "int", "string or binary"], id="a number as value"),
    pytest.param("value struct<a:int>", ["value", "struct<a:int>", "string or binary"], id="a struct as value"),
    pytest.param("value string, key bigint", ["key", "bigint", "string or binary"], id="a number as key"),
    pytest.param("value string, key void", ["key", "void", "string or binary"], id="a key of no type"),
    pytest.param("value string, partition bigint", ["partition", "bigint", "int"], id="a long partition"),
    pytest.param("value string, partition smallint", ["partition", "smallint", "int"], id="a short partition"),
    pytest.param("value string, partition string", ["partition", "string", "int"], id="text as partition"),
    pytest.param(
        "value string, headers map<string,binary>",
        ["headers", "map<string,binary>", "array<struct<key:string,value:binary>>"],
        id="a map of headers",
    ),
    pytest.param(
        "value string, headers array<struct<key:string,value:string>>",
        ["headers", "array<struct<key:string,value:string>>", "array<struct<key:string,value:binary>>"],
        id="text in headers",
    ),
    pytest.param(
        "value string, headers array<struct<value:binary,key:string>>",
        ["headers", "array<struct<value:binary,key:string>>", "array<struct<key:string,value:binary>>"],
        id="headers in another order",
    ),
]


@pytest.mark.parametrize(("columns", "facts"), REFUSED)
def test_columns_that_are_missing_or_mistyped_are_refused_before_a_row_is_written(
    spark: "SparkSession", write: Write, either: str, columns: str, facts: list[str]
) -> None:
    rows = spark.createDataFrame([], columns)
    said = failure(lambda: write(rows, "never-made", format=either))
    assert not [fact for fact in facts if fact not in said], said


@pytest.mark.parametrize(
    ("columns", "facts"),
    [
        pytest.param("value string", ["topic option", "option topic"], id="no topic at all"),
        pytest.param("value string, topic binary", ["topic", "binary", "string"], id="bytes as topic"),
        pytest.param("value string, topic int", ["topic", "int", "string"], id="a number as topic"),
    ],
)
def test_without_the_option_rows_must_have_a_topic_that_is_text(
    spark: "SparkSession", write: Write, either: str, columns: str, facts: list[str]
) -> None:
    said = failure(lambda: write(spark.createDataFrame([], columns), format=either))
    if columns == "value string":
        assert any(fact in said for fact in facts), said
    else:
        assert not [fact for fact in facts if fact not in said], said


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        pytest.param("'v' value, 'w' value", "the column value stands there 2 times", id="a column twice"),
        pytest.param("'v' value, 1 other, 2 other", "the column other stands there 2 times", id="another column twice"),
        pytest.param(
            "'v' value, array(named_struct('Key', 'h', 'Value', cast('x' as binary))) headers",
            "the column headers must be array<struct<key:string,value:binary>>",
            id="headers in another case",
        ),
    ],
)
def test_what_ours_alone_refuses(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, either: str, columns: str, message: str
) -> None:
    topic = new_topic()
    rows = spark.sql(f"select {columns}")
    if either == "pylog":
        assert message in failure(lambda: write(rows, topic))
    else:
        write(rows, topic, format=either)
        assert [row[2] for row in placed(read(topic, includeHeaders="true"))] == [b"v"]


@pytest.mark.parametrize("columns", ["'v' collate UTF8_LCASE value", "'v' value, parse_json('{}') extra"])
def test_what_ours_alone_takes(
    spark: "SparkSession", new_topic: NewTopic, write: Write, read: Read, either: str, columns: str
) -> None:
    topic = new_topic()
    rows = spark.sql(f"select {columns}")
    if either == "pylog":
        write(rows, topic)
        assert [row[2] for row in placed(read(topic, includeHeaders="true"))] == [b"v"]
    else:
        assert "unsupported" in failure(lambda: write(rows, topic, format=either)).lower()


BAD_ROWS = [
    pytest.param("value string, topic string", ("v", None), ["null", "topic"], id="a null topic"),
    pytest.param("value string, partition int", ("v", -1), ["partition", "-1"], id="a negative partition"),
    pytest.param("value string, partition int", ("v", 7), ["artition 7"], id="a partition that is not there"),
    pytest.param(f"value string, {HEADERS}", ("v", [(None, b"x")]), [], id="a header without a key"),
    pytest.param(f"value string, {HEADERS}", ("v", [None]), [], id="a header that is null"),
]


@pytest.mark.parametrize(("columns", "row", "facts"), BAD_ROWS)
def test_rows_that_no_topic_can_take_fail_the_write(
    spark: "SparkSession",
    new_topic: NewTopic,
    write: Write,
    either: str,
    columns: str,
    row: tuple[Any, ...],
    facts: list[str],
) -> None:
    topic = None if "topic" in columns else new_topic(partitions=2)
    options = {"kafka.max.block.ms": "1000"} if either == "kafka" else {}  # how long it waits for such a partition
    said = failure(lambda: write(spark.createDataFrame([row], columns), topic, format=either, **options))
    assert not [fact for fact in facts if fact not in said], said
    if either == "pylog" and "headers" in columns:
        assert "a header must have a key" in said
