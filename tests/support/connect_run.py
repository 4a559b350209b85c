"""A client of Spark Connect with a server of its own: a topic is written, read and copied; what was found is told in
the last line, as JSON.

`connect_run.py SERVERS TOPIC FOLDER`, a process of its own: one that has a classic session cannot have one of these."""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable  # the server's Python is the one that must have the package
os.environ["SPARK_TESTING"] = "1"  # by which the server takes a free port

from pyspark.sql import SparkSession

import pylog

SERVERS, TOPIC, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
COUNT = 1_000
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.local.dir": str(FOLDER / "local"),
    "spark.sql.warehouse.dir": str(FOLDER / "warehouse"),
}

builder: Any = SparkSession.builder
spark: Any = builder.config(map=CONFIG).remote("local[2]").getOrCreate()
pylog.register(spark)
pylog.register(spark)
options = {"kafka.bootstrap.servers": SERVERS}
copied = f"{TOPIC}-copy"

rows = spark.range(COUNT).selectExpr("cast(id as string) key", "cast(id as string) value")
rows.write.format("pylog").options(**options, topic=TOPIC).mode("append").save()
stream = spark.readStream.format("pylog").options(**options, subscribe=TOPIC, startingOffsets="earliest").load()
writer = stream.select("key", "value").writeStream.format("pylog").options(**options, topic=copied)
query = writer.option("checkpointLocation", str(FOLDER / "checkpoint")).trigger(availableNow=True).start()
query.awaitTermination(120)

found: dict[str, Any] = {"session": type(spark).__module__}
for topic in (TOPIC, copied):
    batch = spark.read.format("pylog").options(**options, subscribe=topic).load()
    read = batch.selectExpr("cast(key as string) key", "cast(value as string) value").collect()
    found[topic] = sorted(int(row["value"]) for row in read if row["key"] == row["value"]) == list(range(COUNT))
try:
    spark.read.format("pylog").options(**options, subscribe=TOPIC, startingOfsets="earliest").load().collect()
except Exception as error:
    found["error"] = str(error)
spark.stop()
print(json.dumps(found))
