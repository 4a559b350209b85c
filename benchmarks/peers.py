"""The brokers under measurement, side by side on 127.0.0.1, both with their defaults and data on the same disk.

Two things are set, in both. A group's first member does not wait for others. And the files of a deleted topic go at
once, so that a run finds the memory of the one before it: a virtual machine gives memory that is free for long back to
its host, and to have a page of it again takes six times the CPU of writing to it (1.2 s a GB). That fell on one run or
another, and hid what differs.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.harness import say
from pylog import Broker
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from tests.support.apache_kafka import ApacheKafka, ApacheKafkaFailed
from tests.support.jars import JarsUnavailable
from tests.support.java import JavaUnavailable

PYLOG = "pylog"
APACHE_KAFKA = "Apache Kafka"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "log.segment.delete.delay.ms": "0"}
KAFKA_HEAP = "1g"  # what Kafka's own start script gives it
PARTITIONS = 4
TOPIC_SECONDS_MAX = 60
MEMORY_EVERY_SECONDS = 0.1

PEER_UNAVAILABLE = (ApacheKafkaFailed, JarsUnavailable, JavaUnavailable)


@dataclass(frozen=True)
class RunningBroker:
    name: str
    bootstrap_servers: str
    pid: int
    admin: AdminClient

    def cpu_seconds(self) -> float:
        """Of all its threads, since it started."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    @contextlib.contextmanager
    def topic(self, name: str, partitions: int = PARTITIONS) -> Iterator[str]:
        """A topic for as long as the block lasts. It begins with nothing left to be written to the disk: else
        whoever runs next would wait for what the one before left in memory."""
        self.create_topic(name, partitions)
        os.sync()
        try:
            yield name
        finally:
            self.delete_topic(name)

    def create_topic(self, name: str, partitions: int = PARTITIONS) -> None:
        """Returns when every partition takes records. Apache Kafka says sooner that a topic is made, and then
        Spark's Kafka sink at times sends a partition's first batches out of order, until they time out."""
        self.admin.create_topics([NewTopic(name, partitions)])[name].result(TOPIC_SECONDS_MAX)
        self.records_in(name, partitions)

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(TOPIC_SECONDS_MAX)

    def records_in(self, topic: str, partitions: int = PARTITIONS) -> int:
        cluster = Cluster(ClientConfig.parse({"bootstrap.servers": self.bootstrap_servers}))
        return sum(cluster.latest([(topic, partition) for partition in range(partitions)]).values())


@dataclass
class Brokers:
    """pylog first. A peer that cannot be had is left out, and `skipped` says why."""

    running: list[RunningBroker] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@contextlib.contextmanager
def brokers() -> Iterator[Brokers]:
    with contextlib.ExitStack() as stack:
        found = Brokers()
        ours = stack.enter_context(Broker(config=SETTINGS))
        assert ours.pid is not None
        found.running.append(_running(PYLOG, ours.bootstrap_servers, ours.pid))
        try:
            theirs = stack.enter_context(ApacheKafka(SETTINGS, heap=KAFKA_HEAP))
            found.running.append(_running(APACHE_KAFKA, theirs.bootstrap_servers, theirs.pid))
        except PEER_UNAVAILABLE as error:
            found.skipped.append(f"{APACHE_KAFKA}: {error}")
            say(f"  skipped: {found.skipped[-1]}")
        yield found


class MemoryPeak:
    """The most memory that a process had at once while the block lasted, looked at every tenth of a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most_mb = 0.0
        self._end = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def most_mb(self) -> float:
        return max(self._most_mb, memory_mb(self._pid))

    def __enter__(self) -> "MemoryPeak":
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._end.wait(MEMORY_EVERY_SECONDS):
            self._most_mb = self.most_mb()


def memory_mb(pid: int) -> float:
    """Its resident set."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6


def librdkafka(bootstrap_servers: str) -> dict[str, str | int | float | bool]:
    """Its configuration; silent, for it would remark on every broker that stops."""
    return {"bootstrap.servers": bootstrap_servers, "log_level": 0}


def _running(name: str, bootstrap_servers: str, pid: int) -> RunningBroker:
    return RunningBroker(name, bootstrap_servers, pid, AdminClient(librdkafka(bootstrap_servers)))
