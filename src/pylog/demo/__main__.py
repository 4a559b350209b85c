"""Spark writes a topic, the broker dies, Spark reads every row back. The counts are checked at the end.

write orders ──▶ topic `orders` ──▶ streaming query ──▶ table `per_minute` and topic `orders_per_minute`
                    ▲ kill -9 ▲         ▲ stopped, and resumed from its checkpoint
"""

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pylog
from pylog.demo import orders, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROUND_ROWS = 100_000
ROUNDS = 6
PARTITIONS = 4
GROUP = "orders-per-minute"

_started = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - _started:5.1f} s] {text}", flush=True)


class Demo:
    def __init__(self, spark: "SparkSession", table_format: str, broker: pylog.Broker, directory: Path) -> None:
        self.spark = spark
        self.table_format = table_format
        self.broker = broker
        self.table = str(directory / "per_minute")
        self.checkpoint = str(directory / "checkpoint")
        self.written = 0

    def source(self, topic: str, reader: str = "pylog") -> "DataFrame":
        options = {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "subscribe": topic}
        return self.spark.read.format(reader).options(**options).load()

    def write_round(self) -> None:
        first, self.written = self.written, self.written + ROUND_ROWS
        began = time.monotonic()
        sink = orders.orders(self.spark, first, self.written).write.format("pylog").mode("append")
        sink.option("kafka.bootstrap.servers", self.broker.bootstrap_servers).option("topic", "orders").save()
        say(f"wrote orders {first:,} to {self.written - 1:,} ({ROUND_ROWS / (time.monotonic() - began):,.0f} rows/s)")

    def start_query(self, *, to_the_end: bool) -> "StreamingQuery":
        stream = (
            self.spark.readStream.format("pylog")
            .option("kafka.bootstrap.servers", self.broker.bootstrap_servers)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ROUND_ROWS * 3 // 2)
            .option("kafka.group.id", GROUP)
            .load()
        )
        writer = orders.per_minute(stream).writeStream.outputMode("complete").queryName("orders_per_minute")
        writer = writer.option("checkpointLocation", self.checkpoint).foreachBatch(self.store)
        if to_the_end:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="0 seconds").start()

    def store(self, totals: "DataFrame", batch_id: int) -> None:
        """Both outputs may be repeated after a crash: the table is replaced, a topic's last record of a key holds."""
        totals.persist()
        totals.write.format(self.table_format).mode("overwrite").save(self.table)
        records = orders.as_records(totals).write.format("pylog").mode("append")
        records.option("kafka.bootstrap.servers", self.broker.bootstrap_servers).option(
            "topic", "orders_per_minute"
        ).save()
        say(f"  batch {batch_id}: {totals.selectExpr('sum(orders)').first()[0]:,} orders counted so far")  # type: ignore[index]
        totals.unpersist()

    @contextmanager
    def broker_dies_meanwhile(self) -> Iterator[None]:
        """Killed shortly after the block began, back a second later; the block waits for that."""

        def die() -> None:
            time.sleep(0.3)
            self.broker.kill()
            say("the broker is dead (kill -9)")
            time.sleep(1)
            self.broker.start()
            say("the broker is back, on the same files")

        thread = threading.Thread(target=die)
        thread.start()
        yield
        thread.join()

    def rows_per_second(self, reader: str) -> float:
        def seconds() -> float:
            began = time.monotonic()
            self.source("orders", reader).write.format("noop").mode("overwrite").save()
            return time.monotonic() - began

        seconds()  # warms up
        return self.written / min(seconds() for _ in range(2))


def run(demo: Demo) -> None:
    say(f"writing orders into topic `orders` ({PARTITIONS} partitions)")
    demo.write_round()
    demo.write_round()
    say("starting the streaming query: orders and turnover by city and minute")
    query = demo.start_query(to_the_end=False)
    wait_for_rows(query, ROUND_ROWS)
    with demo.broker_dies_meanwhile():
        demo.write_round()
    wait_for_rows(query, 2 * ROUND_ROWS)
    query.stop()
    say("the query is stopped in mid-stream; more orders arrive meanwhile")
    for _ in range(ROUNDS - 3):
        demo.write_round()
    say("resuming the query from its checkpoint, to the end of the topic")
    demo.start_query(to_the_end=True).awaitTermination()


def wait_for_rows(query: "StreamingQuery", rows: int) -> None:
    while sum(progress.numInputRows for progress in query.recentProgress) < rows:
        error = query.exception()
        if error is not None:
            raise error
        time.sleep(0.1)


def summary(demo: Demo, peer: bool) -> bool:
    """Print it; true if every count agrees."""
    topic = demo.source("orders")
    in_topic, distinct = orders.parsed(topic).selectExpr("count(*)", "count(distinct order_id)").first()  # type: ignore[misc]
    table = demo.spark.read.format(demo.table_format).load(demo.table)
    in_table = table.selectExpr("sum(orders)").first()[0]  # type: ignore[index]
    in_second_topic = orders.latest(demo.source("orders_per_minute")).selectExpr("sum(orders)").first()[0]  # type: ignore[index]
    lag = group_lag(demo.broker.bootstrap_servers)
    ours = demo.rows_per_second("pylog")
    rows = [
        ("orders sent", demo.written, True),
        ("different orders in topic `orders`", distinct, distinct == demo.written),
        ("  of these sent twice (at-least-once)", in_topic - distinct, True),
        (f"orders counted in the {demo.table_format} table", in_table, in_table == in_topic),
        ("orders counted in topic `orders_per_minute`", in_second_topic, in_second_topic == in_topic),
        (f"lag of group `{GROUP}` in __consumer_offsets", sum(lag.values()), not any(lag.values())),
    ]
    print()
    for name, value, good in rows:
        print(f"  {name:<48} {value:>12,}  {'' if good else '<- does not agree'}")
    print(f"  {'lag by partition':<48} {', '.join(f'{p}: {n}' for p, n in sorted(lag.items())):>12}")
    print(f"  {'rows/s, topic to Spark':<48} {ours:>12,.0f}")
    if peer:
        theirs = demo.rows_per_second("kafka")
        print(f"  {'rows/s, the same with format(kafka)':<48} {theirs:>12,.0f}  ({ours / theirs:.1f}x)")
    print(flush=True)
    return all(good for _, _, good in rows)


def group_lag(bootstrap_servers: str) -> dict[int, int]:
    """By partition: what the group has not read yet."""
    from pylog.connector.client.cluster import Cluster
    from pylog.connector.client.config import ClientConfig

    cluster = Cluster.of(ClientConfig.parse({"bootstrap.servers": bootstrap_servers}))
    ends = cluster.latest([("orders", partition) for partition in cluster.partitions("orders")])
    committed = cluster.committed_offsets(GROUP)
    return {place[1]: end - committed.get(place, 0) for place, end in ends.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pylog.demo", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--peer-jars", default="", help="jars of Spark's Kafka connector, to read the topic with it too"
    )
    peer_jars = parser.parse_args().peer_jars
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # as Ctrl-C does: nothing is left behind
    say("starting Spark (the first time Delta's jars are fetched)")
    with tempfile.TemporaryDirectory(prefix="pylog-demo-") as directory:
        log = Path(directory) / "spark.log"
        spark, table_format = session.start(peer_jars, log)
        if table_format != "delta":
            say("Delta's jars cannot be had here: the table is written as Parquet")
        pylog.register(spark)
        try:
            with pylog.Broker(config={"num.partitions": PARTITIONS}) as broker:
                say(f"an embedded broker listens on {broker.bootstrap_servers}")
                demo = Demo(spark, table_format, broker, Path(directory))
                run(demo)
                agreed = summary(demo, peer=bool(peer_jars))
        except BaseException:
            print(log.read_text(errors="replace")[-20_000:], file=sys.stderr)  # what Spark said of it
            raise
        finally:
            spark.stop()
    say("every count agrees" if agreed else "FAILED: the counts do not agree")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
