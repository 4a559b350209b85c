"""A Spark session for the demo, with Delta where its jars can be had, and its chatter in a file."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(peer_jars: str, log: Path) -> tuple["SparkSession", str]:
    """(session, table format): "delta", or "parquet" where Delta's package or jars are missing."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _output_to(log):  # what the JVM inherits, it keeps
        with contextlib.suppress(Exception):  # the JVM ends before it answers when jars cannot be resolved
            return _with_delta(peer_jars).getOrCreate(), "delta"
        return _builder(peer_jars).getOrCreate(), "parquet"


def _with_delta(peer_jars: str) -> "SparkSession.Builder":
    from delta import configure_spark_with_delta_pip

    builder: SparkSession.Builder = configure_spark_with_delta_pip(_builder(peer_jars))
    return (
        builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "2")
    )


def _builder(peer_jars: str) -> "SparkSession.Builder":
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.Builder()
        .master("local[2]")
        .appName("pylog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    return builder.config("spark.jars", peer_jars) if peer_jars else builder


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Standard output and error of this process, and of those it starts meanwhile, go into a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)
