"""format("pylog") and format("kafka") on listeners with TLS and SASL: the same options let both in, and both see the
same rows."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.support.secured_kafka import WAYS_IN, SecuredKafka, jaas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ["pylog", "kafka"]
COUNT = 200


@pytest.fixture(scope="module")
def topic(spark: "SparkSession", secured: SecuredKafka) -> str:
    rows = spark.range(COUNT).selectExpr("cast(id as string) as value")
    rows.write.format("pylog").options(**options_of(secured, "SASL_SSL", "PLAIN")).option("topic", "rows").mode(
        "append"
    ).save()
    return "rows"


def options_of(secured: SecuredKafka, listener: str, mechanism: str) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in secured.options(listener, mechanism).items()}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("listener", "mechanism"), WAYS_IN)
def test_a_batch_is_read(
    spark_kafka: "SparkSession", secured: SecuredKafka, topic: str, listener: str, mechanism: str, name: str
) -> None:
    reader = spark_kafka.read.format(name).options(**options_of(secured, listener, mechanism))
    rows = reader.option("subscribe", topic).load().selectExpr("cast(value as string)").collect()
    assert sorted(int(row.value) for row in rows) == list(range(COUNT))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("listener", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-512")])
def test_a_stream_is_read_and_written(
    spark_kafka: "SparkSession",
    secured: SecuredKafka,
    topic: str,
    tmp_path: Path,
    listener: str,
    mechanism: str,
    name: str,
) -> None:
    options = options_of(secured, listener, mechanism)
    copied = f"copy-{name}-{listener}"
    rows: Any = spark_kafka.readStream.format(name).options(**options).option("subscribe", topic)
    rows = rows.option("startingOffsets", "earliest").load().select("value")
    writer = rows.writeStream.format(name).options(**options).option("topic", copied)
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert spark_kafka.read.format("pylog").options(**options).option("subscribe", copied).load().count() == COUNT


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: {"kafka.sasl.jaas.config": jaas("PLAIN", password="n0t-it")}, id="a wrong password"),
        pytest.param(lambda: {"kafka.sasl.jaas.config": jaas("PLAIN").rstrip(";")}, id="no semicolon"),
        pytest.param(lambda: {"kafka.ssl.truststore.location": "/none"}, id="no truststore"),
    ],
)
def test_what_lets_one_not_in_lets_neither(
    spark_kafka: "SparkSession", secured: SecuredKafka, topic: str, name: str, wrong: Callable[[], dict[str, str]]
) -> None:
    options = {**options_of(secured, "SASL_SSL", "PLAIN"), **wrong()}
    with pytest.raises(Exception):  # noqa: B017, PT011 (each has words of its own)
        spark_kafka.read.format(name).options(**options).option("subscribe", topic).load().collect()
