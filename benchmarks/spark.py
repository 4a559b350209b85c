"""One Spark, local[2], for both connectors: ours registered, Spark's own Kafka connector among its jars."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

import psutil
from pyspark.sql import SparkSession

import pylog
from benchmarks.ceiling import CeilingDataSource
from benchmarks.harness import say
from tests.support.jars import JarsUnavailable, spark_kafka_jars

OURS = "pylog"
THEIRS = "kafka"


@contextlib.contextmanager
def session(skipped: list[str]) -> Iterator[tuple[SparkSession, list[str]]]:
    """The session, and the formats that it knows; why one is missing is added to `skipped`."""
    formats, jars = [OURS], ""
    try:
        jars = ",".join(map(str, spark_kafka_jars()))
        formats.append(THEIRS)
    except JarsUnavailable as error:
        skipped.append(f"Spark's Kafka connector: {error}")
        say(f"  skipped: {skipped[-1]}")
    with tempfile.TemporaryDirectory(prefix="pylog-bench-") as folder:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        config = {
            "spark.jars": jars,
            "spark.driver.memory": "4g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        }
        spark = pylog.spark_session("pylog benchmarks", master="local[2]", config=config)
        spark.dataSource.register(CeilingDataSource)
        try:
            yield spark, formats
        finally:
            spark.stop()


def processes(session: SparkSession) -> list[psutil.Process]:
    """Spark's own, and the Python processes that it runs tasks in."""
    gateway = session.sparkContext._gateway
    assert gateway is not None
    java = psutil.Process(gateway.proc.pid)
    return [java, *java.children(recursive=True)]


def cpu_seconds(session: SparkSession) -> float:
    """Of all of them, also of those that have ended."""
    total = 0.0
    for one in processes(session):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(one.cpu_times()[:4])
    return total
