# Databricks notebook source
# MAGIC %md
# MAGIC # pylog in five minutes
# MAGIC
# MAGIC A Kafka-compatible log for Spark, in Python: a broker in a child process, a Spark source and a sink, no jars.
# MAGIC This notebook writes a topic, reads it as a batch and as a stream, and looks at the progress that the
# MAGIC stream left in `__consumer_offsets`.
# MAGIC
# MAGIC It needs `pip install "pylog[spark]"` and a `spark` session of PySpark 4.2 or newer.

# COMMAND ----------

import tempfile

from pyspark.sql import functions as F

import pylog

pylog.register(spark)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A broker
# MAGIC `pylog.Broker()` starts one on a free port and a temporary directory, and leaves nothing behind. To keep the
# MAGIC data give it a directory, `pylog.Broker("/some/where")`, or run `pylog serve --data /some/where`. An Apache
# MAGIC Kafka cluster works too: name its address below.

# COMMAND ----------

broker = pylog.Broker(config={"num.partitions": 2}).start()
servers = broker.bootstrap_servers
print(servers)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Write
# MAGIC Columns are those of Spark's Kafka connector: `value`, and if you like `key`, `headers`, `topic`, `partition`;
# MAGIC `timestamp` is ours. Rows of one key go to one partition, the same that Java's producer would choose.

# COMMAND ----------

rides = spark.range(1000).select(
    F.concat(F.lit("car-"), F.col("id") % 20).alias("key"),
    F.to_json(F.struct(F.col("id").alias("ride"), (F.col("id") % 7 + 3).alias("km"))).alias("value"),
)
rides.write.format("pylog").option("kafka.bootstrap.servers", servers).option("topic", "rides").mode("append").save()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read a batch

# COMMAND ----------

topic = spark.read.format("pylog").option("kafka.bootstrap.servers", servers).option("subscribe", "rides").load()
topic.printSchema()
rides_read = topic.count()
print(rides_read, "rides")
topic.groupBy("partition").count().show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read a stream
# MAGIC `kafka.group.id` names the group that the progress is committed to, after each batch, so that every Kafka tool
# MAGIC can show how far behind the query is. Spark's checkpoint stays the truth.

# COMMAND ----------

checkpoint = tempfile.mkdtemp()


def run_to_the_end():
    stream = (
        spark.readStream.format("pylog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "rides")
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", "quickstart")
        .load()
    )
    km = stream.select(F.from_json(F.col("value").cast("string"), "ride long, km long").alias("r")).select("r.*")
    query = (
        km.groupBy()
        .agg(F.count("ride").alias("rides"), F.sum("km").alias("km"))
        .writeStream.format("memory")
        .queryName("totals")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.table("totals").first()


first_totals = run_to_the_end()
print(first_totals)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The broker dies, and comes back
# MAGIC Everything that was acknowledged is still there, and the stream goes on where its checkpoint stands.

# COMMAND ----------

broker.kill()
broker.start()
rides.write.format("pylog").option("kafka.bootstrap.servers", servers).option("topic", "rides").mode("append").save()
second_totals = run_to_the_end()
print(second_totals)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The group's progress

# COMMAND ----------

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig

cluster = Cluster.of(ClientConfig.parse({"bootstrap.servers": servers}))
committed = cluster.committed_offsets("quickstart")
ends = cluster.latest(committed)
lag = sum(ends[place] - offset for place, offset in committed.items())
print(committed, "lag", lag)

# COMMAND ----------

broker.stop()
