"""A Spark write that takes some seconds, what is done to brokers meanwhile, and whether every row stands where it
should afterwards: once, and in the order of its key."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
ROWS = 200_000
KEYS_OF_TASK = 10
PAUSE_ROWS = 1000  # after so many a task pauses
WAIT_SECONDS_MAX = 120


def cluster_of(servers: str) -> Cluster:
    return Cluster(ClientConfig.parse({"bootstrap.servers": servers, "metadata.max.age.ms": "0"}))


def written(cluster: Cluster, topic: str) -> int:
    return sum(cluster.latest([(topic, partition) for partition in cluster.topic(topic).leaders]).values())


def read(spark: "SparkSession", servers: str, topic: str) -> "DataFrame":
    rows = spark.read.format("pylog").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    return rows.selectExpr("partition", "offset", "cast(key as string) key", "cast(cast(value as string) as bigint) n")


@contextlib.contextmanager
def small_arrow_batches(spark: "SparkSession") -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, str(PAUSE_ROWS))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def write_through(
    spark: "SparkSession",
    servers: str,
    topic: str,
    outages: Sequence[tuple[Callable[[], None], Callable[[], None]]],
    seconds_min: float = 1,
    **options: str,
) -> "DataFrame":
    """The rows of the topic after a write in which brokers went and came back, at equal distances from each other.

    It lasts for `seconds_min` at least, which is to be longer than all outages but the last. Batches are small, so that
    each finds some in flight, and some of them written and not yet acknowledged."""
    writer = _slow_rows(spark, seconds_min).write.format("pylog").options(topic=topic, **options).mode("append")
    writer = writer.option("kafka.bootstrap.servers", servers).option("kafka.batch.size", "4096")
    cluster, failures = cluster_of(servers), list[str]()

    def run() -> None:
        try:
            spark.createDataFrame([], "value int")  # the session is active in this thread, else no format is known
            writer.save()
        except BaseException as error:
            failures.append(str(error)[:3000])

    writing = threading.Thread(target=run)
    with small_arrow_batches(spark):
        writing.start()
        try:
            for number, (go, come_back) in enumerate(outages, 1):
                deadline = time.monotonic() + WAIT_SECONDS_MAX
                while written(cluster, topic) < ROWS * number // (len(outages) + 2):
                    assert writing.is_alive(), failures
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                go()
                assert writing.is_alive(), "it was to be in mid-write"
                come_back()
        finally:
            writing.join(2 * WAIT_SECONDS_MAX)  # more than kafka.delivery.timeout.ms, after which it says what is wrong
    assert not writing.is_alive()
    assert not failures, failures
    return read(spark, servers, topic)


def _slow_rows(spark: "SparkSession", seconds: float) -> "DataFrame":
    """Numbers, in order within each task and each of its keys; it takes a task so many seconds to give them all."""
    pause_ms = int(seconds * 1000) // (ROWS // TASKS // PAUSE_ROWS)
    return spark.range(0, ROWS, 1, TASKS).selectExpr(
        f"concat(id div {ROWS // TASKS}, '-', id % {KEYS_OF_TASK}) key",
        "lpad(cast(id as string), 100, '0') value",
        f"if(id % {PAUSE_ROWS} = 0, java_method('java.lang.Thread', 'sleep', {pause_ms}L), null) pause",
    )


def assert_every_row_once_and_keys_in_order(rows: "DataFrame") -> None:
    counted = rows.selectExpr("count(*)", "count(distinct n)", "min(n)", "max(n)").first()
    assert counted == (ROWS, ROWS, 0, ROWS - 1)
    rows.createOrReplaceTempView("written")
    steps = "select key, partition, n - lag(n) over (partition by key order by partition, offset) step from written"
    by_key = rows.sparkSession.sql(
        f"select count(distinct partition), min(step), max(step) from ({steps}) group by key"
    )
    assert by_key.distinct().collect() == [(1, KEYS_OF_TASK, KEYS_OF_TASK)]
