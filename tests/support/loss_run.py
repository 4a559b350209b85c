"""A Spark that `pylog.spark_session` starts, losses that do not fail its queries, and writes that fail: what is said of
them is on its standard error, wherever it is said.

`loss_run.py SERVERS TOPIC FOLDER`: of the topic's two partitions the records of the first, 10 of them, begin at 4, and
the second has 10, of which 6 are deleted when they are about to be read. The last task of each write
has a row for a partition that is not there: of a batch of three tasks with two rows each, and of a stream of a task for
each partition."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

import pylog

SERVERS, TOPIC, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.local.dir": str(FOLDER / "local"),
    "spark.sql.warehouse.dir": str(FOLDER / "warehouse"),
}
OPTIONS = {"kafka.bootstrap.servers": SERVERS, "subscribe": TOPIC, "failOnDataLoss": "false"}


def starting(first: int, second: int = 0) -> str:
    return json.dumps({TOPIC: {"0": first, "1": second}})


def deleting(batches: Iterator[Any]) -> Iterator[Any]:
    """The task that ends first takes records from the next one: there is one core."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    yield from batches
    admin = AdminClient({"bootstrap.servers": SERVERS})
    (deleted,) = admin.delete_records([TopicPartition(TOPIC, 1, 6)]).values()
    deleted.result(30)


session: Any = pylog.spark_session("losses", master="local[1]", config=CONFIG)
stream = session.readStream.format("pylog").options(**OPTIONS, startingOffsets=starting(1)).load()
writer = stream.writeStream.format("noop").option("checkpointLocation", str(FOLDER / "checkpoint"))
writer.trigger(availableNow=True).start().awaitTermination()

batch = session.read.format("pylog").options(**OPTIONS)
found = {"planned": batch.option("startingOffsets", starting(2)).load().count()}
rows = batch.option("startingOffsets", starting(4)).load().selectExpr("offset")
found["taken"] = rows.mapInArrow(deleting, "offset long").count()

tasks = session.range(0, 6, 1, 3).selectExpr("cast(id as string) value", "cast(if(id = 5, 7, 0) as int) partition")
sink = {"kafka.bootstrap.servers": SERVERS, "topic": TOPIC}
with contextlib.suppress(PySparkException):
    tasks.write.format("pylog").options(**sink).mode("append").save()
stream = session.readStream.format("pylog").options(**OPTIONS, startingOffsets=starting(4, 6)).load()
moved = stream.selectExpr("value", "if(partition = 1, 7, 0) partition")
writer = moved.writeStream.format("pylog").options(**sink).option("checkpointLocation", str(FOLDER / "moved"))
with contextlib.suppress(PySparkException):
    writer.trigger(availableNow=True).start().awaitTermination()
print(json.dumps(found))
session.stop()
