"""`python -m tests.support.spark_copy '{"master": ..., "servers": ..., "topic": ..., "folder": ..., "rows": ...}'`: a
driver of its own that copies a topic to files, whose sink is exactly-once, or to the topic "target", in micro-batches
of so many rows, and ends when all is copied. It is there to be killed; started again it goes on with its checkpoint."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.005
PARTITIONS = 4
ROWS = 200_000  # of the topic


def filled(spark: "SparkSession", servers: str) -> str:
    """A topic to be copied: `ROWS` numbers, evenly over its partitions."""
    from pylog.connector.client.cluster import Cluster
    from pylog.connector.client.config import ClientConfig

    Cluster(ClientConfig.parse({"bootstrap.servers": servers})).create_topic("killing", PARTITIONS, 1)
    rows = spark.range(ROWS).selectExpr("cast(id as string) value", f"cast(id % {PARTITIONS} as int) partition")
    rows.write.format("pylog").option("kafka.bootstrap.servers", servers).option("topic", "killing").mode(
        "append"
    ).save()
    return "killing"


class Copy:
    """The process, seen from a test."""

    def __init__(
        self, servers: str, topic: str, folder: Path, *, rows: int, master: str = "local[2]", target: str | None = None
    ) -> None:
        self._folder = folder
        given = {"master": master, "servers": servers, "topic": topic, "folder": str(folder), "rows": rows}
        given |= {"target": target}
        self._command = [sys.executable, "-m", "tests.support.spark_copy", json.dumps(given)]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder.with_suffix(".log")

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def run(self) -> None:
        """To its end."""
        self.start()
        self.wait()

    def wait(self) -> None:
        assert self._process is not None
        assert self._process.wait(300) == 0, self._log.read_text(errors="replace")[-5000:]

    def wait_until_within_a_batch(self, number: int) -> None:
        """At least this one: its offsets are in the checkpoint, and that it is done is not."""

        def is_within() -> bool:
            done = [int(path.name) for path in self._folder.glob("checkpoint/commits/[0-9]*")]
            begun = [int(path.name) for path in self._folder.glob("checkpoint/offsets/[0-9]*")]
            return max(begun, default=-1) >= number and max(begun) > max(done, default=-1)

        self.wait_until(is_within)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        assert self._process is not None
        deadline = time.monotonic() + 300
        while not is_so():
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-5000:]
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)

    def processes(self) -> list[psutil.Process]:
        assert self._process is not None
        return list(psutil.Process(self._process.pid).children(recursive=True))

    def python_workers(self) -> list[psutil.Process]:
        """Those that run tasks: children of Spark's daemon."""
        return [one for one in self.processes() if "pyspark.daemon" in _words(one) and "daemon" in _words(one.parent())]

    def executors(self) -> list[psutil.Process]:
        return [one for one in self.processes() if "CoarseGrainedExecutorBackend" in _words(one)]

    def kill(self) -> None:
        """-9, the driver and all that it has started. Executors of a local cluster are in its session too."""
        if self._process is None or self._process.poll() is not None:
            return
        found = self.processes()
        os.killpg(self._process.pid, signal.SIGKILL)
        for one in found:  # Spark's daemon has a group of its own
            if one.is_running():
                one.kill()
        self._process.wait()


def _words(process: psutil.Process | None) -> str:
    try:
        return "" if process is None else " ".join(process.cmdline())
    except psutil.Error:
        return ""


def main(master: str, servers: str, topic: str, folder: str, rows: int, target: str | None) -> None:
    scratch = tempfile.mkdtemp(prefix="spark-copy-", dir=folder)
    tempfile.tempdir = scratch  # it is killed before it could tidy up
    os.chdir(scratch)  # executors have another working directory than the sources
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    import pylog

    spark = pylog.spark_session(
        "copy",
        master=master,
        config={
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "ERROR",
        },
    )
    stream = spark.readStream.format("pylog").option("kafka.bootstrap.servers", servers)
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": rows}
    read = stream.options(**options).load()
    if target is None:
        writer = read.selectExpr("partition", "offset").writeStream.format("parquet").option("path", f"{folder}/rows")
    else:
        writer = read.selectExpr("value", "partition").writeStream.format("pylog").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", servers)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
