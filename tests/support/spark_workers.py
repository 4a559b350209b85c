"""The Python processes of a Spark, and what they hold."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

import pylog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def workers_of_ones_own(spark: "SparkSession", name: str) -> Iterator[set[int]]:
    """The processes that are there already, and not taken meanwhile: nobody knows what those of other tests hold, and
    which of them would be taken. Spark shares workers among functions of one environment."""
    variable = "PYLOG_WORKERS_OF"
    environment = spark.sparkContext.environment
    environment[variable] = name
    pylog.register(spark)
    try:
        yield python_processes(spark)
    finally:
        del environment[variable]
        pylog.register(spark)


def python_processes(spark: "SparkSession") -> set[int]:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    found = set()
    for one in psutil.Process(gateway.proc.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            if "python" in one.name():
                found.add(one.pid)
    return found


def forget_peaks(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            Path(f"/proc/{process}/clear_refs").write_text("5")


def most_resident_bytes(process: int) -> int:
    """0 of one that has ended."""
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
