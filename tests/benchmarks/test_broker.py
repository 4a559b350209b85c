"""The broker part: what is read from the words of Kafka's tools, and the client that drives many connections."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pylog
from benchmarks import broker, broker_growth, broker_heartbeats, kafka_tools
from benchmarks.harness import Case, Options, measure
from benchmarks.kafka_tools import Latency, Load, Sent
from benchmarks.peers import MemoryPeak, RunningBroker, _running, memory_mb

WHOLE_LINE = (
    "5000 records sent, 4900.5 records/sec (0.48 MB/sec), 7.36 ms avg latency, 311.00 ms max latency, "
    "1 ms 50th, 40 ms 95th, 221 ms 99th, 301 ms 99.9th.\n"
)
STEADY_LINE = WHOLE_LINE.replace("5000 records", "4000 steady state records").replace("4900.5", "9000.25")
STEADY_LINE = STEADY_LINE.replace("1 ms 50th", "0 ms 50th").replace("221 ms 99th", "3 ms 99th")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[tuple[str, ...]]]:
    """`said(text)`: the tools print this. What is returned fills with their arguments."""

    def prepare(text: str) -> list[tuple[str, ...]]:
        asked: list[tuple[str, ...]] = []

        def run(class_name: str, *arguments: str, **options: Any) -> str:
            asked.append(arguments)
            return text

        monkeypatch.setattr(kafka_tools, "run_kafka_tool", run)
        return asked

    return prepare


def test_of_the_producer_what_comes_behind_the_warm_up_counts(said: Callable[[str], list[tuple[str, ...]]]) -> None:
    asked = said(WHOLE_LINE + STEADY_LINE)
    assert kafka_tools.send("h:1", "t", Load(5000, 100, ("acks=1",), 70)) == Sent(9000.25, 0.5, 3.5)
    (arguments,) = asked
    for wanted in (("--warmup-records", "1000"), ("--throughput", "70"), ("--command-property", "acks=1")):
        assert wanted in itertools.pairwise(arguments)


def test_of_the_consumer_all_records_have_to_come(said: Callable[[str], list[tuple[str, ...]]]) -> None:
    said("2026-11-16 10:31:56:756, 2026-11-16 10:32:00:771, 19.0, 4.7, 200000, 49813.25, 3476, 539, 35.3, 371057.5\n")
    assert kafka_tools.receive("h:1", "t", 200_000) == 49813.25
    with pytest.raises(RuntimeError, match="less than 200001"):
        kafka_tools.receive("h:1", "t", 200_001)


def test_latencies_are_the_middles_of_the_milliseconds_told(said: Callable[[str], list[tuple[str, ...]]]) -> None:
    said("0\t205.7\nAvg latency: 3.0674 ms\n\nPercentiles: 50th = 0, 99th = 17, 99.9th = 46\n")
    assert kafka_tools.end_to_end("h:1", "t", 2000, 100) == Latency(3.0674, 0.5, 17.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: kafka_tools.send("h:1", "t", Load(1, 1)),
        lambda: kafka_tools.receive("h:1", "t", 1),
        lambda: kafka_tools.end_to_end("h:1", "t", 1, 1),
    ],
    ids=["producer", "consumer", "end to end"],
)
def test_a_tool_that_says_something_else_is_no_figure(
    said: Callable[[str], list[tuple[str, ...]]], call: Callable[[], object]
) -> None:
    said("org.apache.kafka.common.errors.TimeoutException: none came\n")
    with pytest.raises(RuntimeError, match="TimeoutException"):
        call()


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with pylog.Broker(config={"group.initial.rebalance.delay.ms": 0}) as own:
        assert own.pid is not None
        yield _running("pylog", own.bootstrap_servers, own.pid)


@pytest.mark.parametrize(
    ("cases", "number"),
    [
        pytest.param(broker_growth.connection_cases, 3, id="connections"),
        pytest.param(broker_growth.group_cases, 3, id="groups"),
    ],
)
def test_many_connections_are_driven_and_what_they_did_is_checked(
    running: RunningBroker, cases: Callable[..., list[Case]], number: int
) -> None:
    (case,) = cases(number, [running], Options(1, scale=0.01))
    (result,) = measure([case], rounds=1)
    assert not result.failures
    (figures,) = result.figures["pylog"].values()
    assert figures.keys() == {one.name for one in case.measures}
    assert min(figures[one.name] for one in case.measures if one is not broker_growth.REQUEST_CPU) > 0


def test_heartbeats_are_answered_while_a_cold_log_is_read_and_another_synced(running: RunningBroker) -> None:
    (result,) = measure(broker_heartbeats.cases([running], Options(1, scale=0.01)), rounds=1)
    assert not result.failures
    (figures,) = result.figures["pylog"].values()
    assert figures.keys() == {one.name for one in result.case.measures}
    assert min(figures.values()) > 0


def test_the_most_memory_is_at_least_what_there_is_at_the_end(running: RunningBroker) -> None:
    with MemoryPeak(running.pid) as memory:
        assert memory.most_mb() >= memory_mb(running.pid) - 5


def test_every_growth_has_brokers_of_its_own() -> None:
    assert len(broker.GROUPS) == len(set(broker.GROUPS)) == 4 + 6
