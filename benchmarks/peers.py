"""The brokers under measurement, side by side on 127.0.0.1, both with their defaults and data on the same disk."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

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
KAFKA_HEAP = "1g"  # what Kafka's own start script gives it
PARTITIONS = 4
TOPIC_SECONDS_MAX = 60

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
    def topic(self, name: str) -> Iterator[str]:
        """A topic for as long as the block lasts. It begins with nothing left to be written to the disk: else
        whoever runs next would wait for what the one before left in memory."""
        self.create_topic(name)
        os.sync()
        try:
            yield name
        finally:
            self.admin.delete_topics([name])[name].result(TOPIC_SECONDS_MAX)

    def create_topic(self, name: str) -> None:
        """Returns when every partition takes records. Apache Kafka says sooner that a topic is made, and then
        Spark's Kafka sink at times sends a partition's first batches out of order, until they time out."""
        self.admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(TOPIC_SECONDS_MAX)
        self.records_in(name)

    def records_in(self, topic: str) -> int:
        cluster = Cluster(ClientConfig.parse({"bootstrap.servers": self.bootstrap_servers}))
        return sum(cluster.latest([(topic, partition) for partition in range(PARTITIONS)]).values())


@dataclass
class Brokers:
    """pylog first. A peer that cannot be had is left out, and `skipped` says why."""

    running: list[RunningBroker] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@contextlib.contextmanager
def brokers() -> Iterator[Brokers]:
    with contextlib.ExitStack() as stack:
        found = Brokers()
        ours = stack.enter_context(Broker())
        assert ours.pid is not None
        found.running.append(_running(PYLOG, ours.bootstrap_servers, ours.pid))
        try:
            theirs = stack.enter_context(ApacheKafka(heap=KAFKA_HEAP))
            found.running.append(_running(APACHE_KAFKA, theirs.bootstrap_servers, theirs.pid))
        except PEER_UNAVAILABLE as error:
            found.skipped.append(f"{APACHE_KAFKA}: {error}")
            say(f"  skipped: {found.skipped[-1]}")
        yield found


def librdkafka(bootstrap_servers: str) -> dict[str, str | int | float | bool]:
    """Its configuration; silent, for it would remark on every broker that stops."""
    return {"bootstrap.servers": bootstrap_servers, "log_level": 0}


def _running(name: str, bootstrap_servers: str, pid: int) -> RunningBroker:
    return RunningBroker(name, bootstrap_servers, pid, AdminClient(librdkafka(bootstrap_servers)))
