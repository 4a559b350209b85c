"""A Spark session with what measured well for `format("pylog")`, and with it registered.

What a user sets comes first. A session that is there already is taken as it is: its static settings stay.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pylog.connector.spark import check_pyspark, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each is better than Spark's default for this source and sink, or no worse: docs/performance.md.
PRESETS = {
    "spark.python.unix.domain.socket.enabled": "true",  # rows of 1 KB come a fifth faster than through TCP
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",  # else filters on topic, partition, offset, time read all
}


def spark_session(
    name: str = "pylog", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> "SparkSession":
    """The session, made if there is none. `master` and `config` are Spark's own, and come before the presets."""
    check_pyspark()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark takes whatever python3 is on PATH
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**PRESETS, **(config or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    return session
