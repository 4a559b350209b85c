"""A Spark that `pylog.spark_session` starts, and what it makes of checkpoints, as JSON in its last line.

`checkpoint_run.py FOLDER MANAGER`: the folder is empty, the manager Spark's own."""

import json
import sys
from pathlib import Path
from typing import Any

import pylog
from pylog.connector.spark import checkpoint_files

FOLDER, SPARKS_OWN = Path(sys.argv[1]), sys.argv[2]
OPTION, OURS = checkpoint_files.OPTION, checkpoint_files.MANAGER
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.local.dir": str(FOLDER / "local"),
    "spark.sql.warehouse.dir": str(FOLDER / "warehouse"),
    "spark.sql.shuffle.partitions": "1",
}

session: Any = pylog.spark_session("checkpoints", master="local[1]", config=CONFIG)
seen: dict[str, Any] = {"chosen": session.conf.get(OPTION)}

hadoop = session.sparkContext._jsc.hadoopConfiguration()
session.conf.unset(OPTION)
hadoop.set("fs.defaultFS", "hdfs://somewhere:8020")
pylog.spark_session()
seen["with files elsewhere"] = session.conf.get(OPTION, None)
hadoop.set("fs.defaultFS", "file:///")

checkpoint_files.MANAGER += "OfOld"
pylog.spark_session()
seen["without such a class"] = session.conf.get(OPTION, None)

texts, checkpoint = FOLDER / "texts", FOLDER / "checkpoint"
texts.mkdir()


def counted(manager: str, new: int) -> int:
    """All lines so far, after a run that finds one new file with so many lines."""
    session.conf.set(OPTION, manager)
    if new:
        (texts / f"{len(list(texts.iterdir()))}.txt").write_text("line\n" * new)
    lines = session.readStream.text(str(texts)).groupBy("value").count()
    writer = lines.writeStream.format("memory").queryName("counted").outputMode("complete")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return int(session.table("counted").first()["count"])


seen["counts"] = [counted(SPARKS_OWN, 3), counted(OURS, 4), counted(SPARKS_OWN, 5), counted(OURS, 6)]
state = checkpoint / "state/0/0/4.delta"
before = state.stat().st_ino
for name in ("3", ".3.crc"):  # as if it had died before the batch was complete
    (checkpoint / "commits" / name).unlink()
seen["counts"].append(counted(OURS, 0))
seen["is replaced"] = state.stat().st_ino != before
seen["counts"] += [counted(SPARKS_OWN, 7), counted(OURS, 8)]
seen["left"] = [str(one) for one in checkpoint.rglob("*.tmp*")]
try:
    counted("NoSuchManager", 0)
except Exception as error:
    seen["error"] = str(error)
print(json.dumps(seen))
session.stop()
