"""A Spark session for the demo, with Delta where its jars can be had."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(peer_jars: str) -> tuple["SparkSession", str]:
    """(session, table format): "delta", or "parquet" where Delta's package or jars are missing."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError:
        return _builder(peer_jars).getOrCreate(), "parquet"
    builder = (
        configure_spark_with_delta_pip(_builder(peer_jars))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    try:
        return builder.getOrCreate(), "delta"
    except Exception:  # the JVM ended before it answered: its jars could not be resolved
        return _builder(peer_jars).getOrCreate(), "parquet"


def _builder(peer_jars: str) -> "SparkSession.Builder":
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pylog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    return builder.config("spark.jars", peer_jars) if peer_jars else builder
