"""A Spark session with settings that suit `format("pylog")`, and with it registered.

What a user sets comes first. A session that is there already is taken as it is: its static settings stay.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pylog.connector.spark import check_pyspark, register
from pylog.connector.spark.checkpoint_files import LOCAL_FILES, without_processes
from pylog.connector.spark.home import compiled_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
PRESETS = {
    # Arrow checks bounds and nulls at every value that Spark takes of a batch. Spark, which knows the rows of a batch and
    # asks for nulls itself, needs neither: 100 B rows 4.8 M/s with them, 5.6 without. What a user gives Java comes behind.
    "spark.driver.defaultJavaOptions": _UNCHECKED,
    "spark.executor.defaultJavaOptions": _UNCHECKED,
    "spark.python.unix.domain.socket.enabled": "true",  # 1 KB rows as Arrow: 0.96-1.37 M/s, by TCP 0.84-1.02
    # Rows on their way to Python: 10,000 of 1 KB are more than the processor's caches hold, and took 10 % longer.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",  # for toPandas; the source has Arrow anyway
    "spark.hadoop.fs.file.impl": LOCAL_FILES,  # for checkpoints; else it is Hive's
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
    with compiled_home((config or {}).get("spark.master", master)):
        session = builder.getOrCreate()
    without_processes(session)
    register(session)
    return session
