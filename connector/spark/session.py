"""A Spark session with settings that suit `format("pylog")`, and with it registered.

What a user sets comes first. A session that is there already is taken as it is: its static settings stay.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pylog.connector.spark import check_pyspark, register
from pylog.connector.spark.checkpoint_files import LOCAL_FILES, without_processes
from pylog.connector.spark.home import compiled_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Read by Arrow in Java, when it starts: it then does not check the bounds of its memory at every value (docs/adr/0018).
_ARROW_UNCHECKED = "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS"
PRESETS = {
    "spark.python.unix.domain.socket.enabled": "true",  # 1 KB rows as Arrow: 0.96-1.37 M/s, by TCP 0.84-1.02
    # Rows on their way to Python: 10,000 of 1 KB are more than the processor's caches hold, and batches of 1 or 2 MB
    # cost Python more than they save.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
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
    unchecked = os.environ.get(_ARROW_UNCHECKED, "true")
    presets = {**PRESETS, f"spark.executorEnv.{_ARROW_UNCHECKED}": unchecked}
    for key, value in {**presets, **(config or {})}.items():
        builder = builder.config(key, value)
    with compiled_home((config or {}).get("spark.master", master)), _environment(_ARROW_UNCHECKED, unchecked):
        session = builder.getOrCreate()
    without_processes(session)
    register(session)
    return session


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A JVM that is started meanwhile has this in its environment, too."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
