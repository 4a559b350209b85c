"""A Spark that `pylog.spark_session` starts, and losses that do not fail its queries: what is said of them is on its
standard error, wherever it is said.

`loss_run.py SERVERS TOPIC FOLDER`: of the topic's two partitions the records of the first, 10 of them, begin at 4, and
the second has 10, of which 6 are deleted when they are about to be read."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def starting(first: int) -> str:
    return json.dumps({TOPIC: {"0": first, "1": 0}})


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
print(json.dumps(found))
session.stop()
