"""The memory of a task while the range that it reads grows a hundredfold: it is to stay what it is.

One partition is one task, in one Python worker; its largest resident set is what the kernel has noted of it."""

from functools import partial
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from benchmarks import spark
from benchmarks.harness import Case, Contender, Figures, Measure, Options
from benchmarks.peers import RunningBroker
from benchmarks.source_topics import Topic

MEMORY = Measure("most MB of a Python worker", higher_is_better=False)
COUNT = 30_000
VALUE_BYTES = 1000
GROWTH = (1, 10, 100)


def cases(session: SparkSession, broker: RunningBroker, options: Options) -> list[Case]:
    if not options.wants_bytes(VALUE_BYTES):
        return []
    topic = Topic(options.scaled(COUNT) * GROWTH[-1], VALUE_BYTES, partitions=1)
    topic.fill(session, broker)
    counts = [options.scaled(COUNT) * times for times in GROWTH]
    return [
        Case(
            f"{count * VALUE_BYTES / 1e6:,.0f} MB in one task, on {broker.name}",
            [Contender(f'format("{spark.OURS}")', partial(_read, session, broker, topic, count))],
            (MEMORY,),
        )
        for count in counts
    ]


def _read(session: SparkSession, broker: RunningBroker, topic: Topic, count: int) -> Figures:
    for worker in _workers(session):
        _forget_peak(worker)
    rows = session.read.format(spark.OURS).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    rows = rows.option("subscribe", topic.topic).option("endingOffsets", f'{{"{topic.topic}": {{"0": {count}}}}}')
    rows = rows.option("maxRecordsPerPartition", count)  # or a large range would be several tasks
    rows.load().write.format("noop").mode("overwrite").save()
    return {MEMORY.name: max(_peak_mb(worker) for worker in _workers(session))}


def _workers(session: SparkSession) -> list[psutil.Process]:
    return spark.processes(session)[1:]


def _forget_peak(worker: psutil.Process) -> None:
    """What the worker held in an earlier task is not this one's."""
    Path(f"/proc/{worker.pid}/clear_refs").write_text("5")


def _peak_mb(worker: psutil.Process) -> float:
    for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
