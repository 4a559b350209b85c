"""Columns of a source and of a sink, and the check for a Spark that is too old."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

import pylog
from pylog.connector.spark import SparkTooOld
from pylog.connector.spark.errors import SchemaError
from pylog.connector.spark.schema import check_sink_schema, check_source_schema, source_schema

HEADERS = "headers array<struct<key:string,value:binary>>"


def ddl(text: str) -> StructType:
    return StructType.fromDDL(text)


def test_the_columns_are_those_of_sparks_kafka_connector(spark: Any) -> None:
    columns = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
    assert source_schema(False) == ddl(f"{columns}, timestampType int")
    assert source_schema(True) == ddl(f"{columns}, timestampType int, {HEADERS}")


@pytest.mark.parametrize(
    ("columns", "include_headers"),
    [
        pytest.param("value binary", False, id="one"),
        pytest.param("offset long, key binary", False, id="some, in another order"),
        pytest.param(f"value binary, {HEADERS}", False, id="headers by schema alone"),
        pytest.param(f"value binary, {HEADERS}", True, id="headers by both"),
        pytest.param("offset long not null", False, id="not null, which offsets never are"),
    ],
)
def test_a_schema_may_choose_columns(spark: Any, columns: str, include_headers: bool) -> None:
    check_source_schema(ddl(columns), include_headers)


@pytest.mark.parametrize(
    ("columns", "include_headers", "message"),
    [
        pytest.param("value string", False, "column value is binary, not string", id="another type"),
        pytest.param("Value binary", False, "no column Value .did you mean value", id="another case"),
        pytest.param("amount int", False, "no column amount .there are key, value", id="a column of one's own"),
        pytest.param("value binary", True, "no column headers", id="headers asked for and left out"),
        pytest.param("value binary, value binary", False, "none twice", id="twice"),
    ],
)
def test_a_schema_cannot_change_columns(spark: Any, columns: str, include_headers: bool, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_source_schema(ddl(columns), include_headers)


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        pytest.param("value binary", "t", id="value alone"),
        pytest.param("value string, key string, topic string", None, id="a topic for each row"),
        pytest.param(f"value binary, {HEADERS}, partition int, timestamp timestamp", "t", id="everything"),
        pytest.param("value binary, offset long, whatever double", "t", id="others are left out"),
        pytest.param("value binary, topic long", "t", id="a topic that does not count"),
        pytest.param("value binary, headers array<struct<key:string not null,value:binary>>", "t", id="not null"),
    ],
)
def test_a_sink_takes(spark: Any, columns: str, topic: str | None) -> None:
    check_sink_schema(ddl(columns), topic)


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        pytest.param("key binary", "t", "column value .string or binary. is required", id="no value"),
        pytest.param("value int", "t", "value must be string or binary, not int: cast it", id="a number for a value"),
        pytest.param("value binary, key long", "t", "key must be string or binary, not bigint", id="a number as key"),
        pytest.param("value binary", None, "set the option topic, or add a column topic", id="no topic"),
        pytest.param("value binary, topic binary", None, "topic must be string", id="a topic of bytes"),
        pytest.param("value binary, partition long", "t", "partition must be int, not bigint", id="a long partition"),
        pytest.param("value binary, timestamp long", "t", "timestamp must be timestamp", id="a time as a number"),
        pytest.param("value binary, headers map<string,binary>", "t", "headers must be array<struct", id="a map"),
        pytest.param(
            "value binary, headers array<struct<key:string,value:string>>", "t", "headers must be", id="text in headers"
        ),
        pytest.param("value binary, value string", "t", "value stands there 2 times: drop", id="twice"),
        pytest.param("value binary, other int, other int", "t", "other stands there 2 times", id="another twice"),
        pytest.param("value binary, term interval month", "t", "term is an interval month: drop it", id="months"),
    ],
)
def test_a_sink_refuses(spark: Any, columns: str, topic: str | None, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_sink_schema(ddl(columns), topic)


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkTooOld, match=r"PySpark is not installed: pip install 'pyspark>=4\.2'"):
        pylog.register(SimpleNamespace(version="4.2.0"))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["4.1.1", "3.5.6", "4.0.0.dev1", "unknown"])
def test_an_older_pyspark_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(SparkTooOld, match=rf"needs PySpark 4\.2 or later, and PySpark is {version}: pip install"):
        pylog.register(SimpleNamespace(version="4.2.0"))  # type: ignore[arg-type]


def test_an_older_server_is_refused_too() -> None:
    with pytest.raises(SparkTooOld, match=r"this session's Spark is 3\.5\.1"):
        pylog.register(SimpleNamespace(version="3.5.1"))  # type: ignore[arg-type]


def test_registering_again_is_harmless(spark: Any) -> None:
    pylog.register(spark)
    pylog.register(spark)
