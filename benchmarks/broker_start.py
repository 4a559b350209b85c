"""From the start of the process to its first answer (ApiVersions), and the memory it then idles in."""

import time

from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target
from benchmarks.peers import APACHE_KAFKA, KAFKA_HEAP, PYLOG, memory_mb
from pylog import Broker
from tests.support.apache_kafka import ApacheKafka
from tests.support.probe import answers

MEASURES = (
    Measure("start s", higher_is_better=False, decimals=2),
    Measure("idle MB", higher_is_better=False),
)
TARGETS = {"start s": Target(value_max=0.3), "idle MB": Target(value_max=50)}
IDLE_SECONDS = 2.0


def cases(options: Options) -> list[Case]:
    contenders = [Contender(PYLOG, _pylog), Contender(APACHE_KAFKA, _apache_kafka)]
    return [Case("empty data directory", contenders, MEASURES, TARGETS)]


def _pylog() -> Figures:
    broker = Broker()
    began = time.perf_counter()
    with broker:
        if not answers(broker.bootstrap_servers):
            raise RuntimeError("pylog said that it listens, and does not answer")
        seconds = time.perf_counter() - began
        assert broker.pid is not None
        return {"start s": seconds, "idle MB": _idle_mb(broker.pid)}


def _apache_kafka() -> Figures:
    kafka = ApacheKafka(heap=KAFKA_HEAP)
    try:
        kafka.prepare()  # formatting the data directory is not starting
        began = time.perf_counter()
        kafka.start()
        return {"start s": time.perf_counter() - began, "idle MB": _idle_mb(kafka.pid)}
    finally:
        kafka.close()


def _idle_mb(pid: int) -> float:
    time.sleep(IDLE_SECONDS)
    return memory_mb(pid)
