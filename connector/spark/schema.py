"""The columns of a source and of a sink: those of Spark's Kafka connector, and `timestamp` in a sink too."""

import difflib

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from pylog.connector.spark.errors import SchemaError

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_SOURCE = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
_HEADERS_FIELD = StructField("headers", _HEADERS)
_DECODED = {
    "offsets": StructType(
        [
            StructField("group", StringType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("metadata", StringType()),
            StructField("commit_timestamp", TimestampType()),
            StructField("log_partition", IntegerType()),
            StructField("log_offset", LongType()),
        ]
    )
}
_SINK: dict[str, tuple[DataType, ...]] = {
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}


def source_schema(include_headers: bool, decode: str | None = None) -> StructType:
    if decode is not None:
        return _DECODED[decode]
    return StructType([*_SOURCE.fields, *([_HEADERS_FIELD] if include_headers else [])])


def check_source_schema(schema: StructType, include_headers: bool, decode: str | None = None) -> None:
    """A schema that a user gives chooses among the columns, in any order; it cannot change them."""
    there = _DECODED[decode].fields if decode is not None else [*_SOURCE.fields, _HEADERS_FIELD]
    columns = {field.name: field.dataType for field in there}
    names = schema.fieldNames()
    if not names or len(set(names)) < len(names):
        raise SchemaError(f"the schema must name at least one column, and none twice: {', '.join(names) or 'none'}")
    for field in schema.fields:
        expected = columns.get(field.name)
        if expected is None:
            raise SchemaError(
                f"there is no column {field.name}{_meant(field.name, columns)}; cast and rename after load()"
            )
        if not _same(field.dataType, expected):
            raise SchemaError(
                f"the column {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}: "
                "read it as it is, and cast it after load()"
            )
    if include_headers and "headers" not in names:
        raise SchemaError(
            "includeHeaders is true, but the schema has no column headers: add it, or leave the option out"
        )


def check_sink_schema(schema: StructType, topic: str | None) -> None:
    """Refuses what Spark's Kafka sink refuses, in words that say what to do. Other columns than the six are left out,
    and so is a column topic, whatever it is, where the option says where rows go."""
    names = schema.fieldNames()
    for field in schema.fields:  # neither of these gets from Spark to Python, though it be left out there
        if names.count(field.name) > 1:
            raise SchemaError(f"the column {field.name} stands there {names.count(field.name)} times: drop all but one")
        if isinstance(field.dataType, YearMonthIntervalType):
            raise SchemaError(f"the column {field.name} is an {field.dataType.simpleString()}: drop it, or cast it")
    for name, types in _SINK.items():
        if name not in names or (name == "topic" and topic is not None):
            continue
        if not any(_same(schema[name].dataType, allowed) for allowed in types):
            allowed = " or ".join(allowed.simpleString() for allowed in types)
            raise SchemaError(
                f"the column {name} must be {allowed}, not {schema[name].dataType.simpleString()}: cast it, or drop it"
            )
    if "value" not in names:
        raise SchemaError(f"a column value (string or binary) is required; there are: {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise SchemaError("nothing says where rows go: set the option topic, or add a column topic (string)")


def _same(one: DataType, other: DataType) -> bool:
    """But for nullability and comments, which say nothing about the bytes."""
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same(one.elementType, other.elementType)
    if isinstance(one, StructType) and isinstance(other, StructType):
        return one.fieldNames() == other.fieldNames() and all(
            _same(ours.dataType, theirs.dataType) for ours, theirs in zip(one.fields, other.fields, strict=True)
        )
    return type(one) is type(other)


def _meant(name: str, columns: dict[str, DataType]) -> str:
    near = difflib.get_close_matches(name.lower(), columns, n=1)
    return f" (did you mean {near[0]}?)" if near else f" (there are {', '.join(columns)})"
