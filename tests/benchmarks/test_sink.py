"""The sink part: its works and targets are what they are called, and what was not written is no figure."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import confluent_kafka
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pylog
from benchmarks import sink, sink_rows, sink_table, sink_trickle, source_trickle
from benchmarks.harness import Case, Contender, Options, Result, measure
from benchmarks.peers import RunningBroker, _running
from benchmarks.sink import MEMORY, STREAM, Work
from benchmarks.sink_rows import Rows


def test_every_work_has_a_name_of_its_own() -> None:
    names = {work.name(value_bytes) for work in sink.WORKS for value_bytes in sink.COUNTS}
    assert len(names) == len(sink.WORKS) * len(sink.COUNTS)


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (Work(MEMORY), "100 B, batch from memory"),
        (Work(STREAM, "zstd", has_keys=True), "100 B, zstd, keyed, stream of 5 triggers from Parquet"),
    ],
)
def test_a_work_is_named_after_what_is_done(work: Work, name: str) -> None:
    assert work.name(100) == name


def test_a_target_is_set_beside_every_peer() -> None:
    for target in sink.TARGETS.values():
        assert isinstance(target.ratio_min, Mapping)
        assert [sink.OURS, *target.ratio_min, sink.DRAINED] == list(sink.WAYS)


def test_what_is_written_to_pylog_is_also_beside_what_sparks_sink_writes_to_apache_kafka() -> None:
    def result(broker: str, rows: dict[str, float]) -> Result:
        contenders = [Contender(name, dict) for name in rows]
        case = Case(
            f"{Work(MEMORY).name(100)}, to {broker}", contenders, [sink.ROWS], {sink.ROWS.name: sink.TARGETS[100]}
        )
        return Result(case, {name: {1: {sink.ROWS.name: count}} for name, count in rows.items()}, {})

    to_pylog = result("pylog", {sink.OURS: 30.0, sink.DEFAULT: 25.0, sink.BATCHED: 26.0, sink.DRAINED: 90.0})
    others = [result(f"pylog ({number})", {sink.OURS: 1.0}) for number in range(3)]
    assert sink._with_own_brokers([to_pylog, *others], [Work(MEMORY)], 100) == [], "there is no Apache Kafka"
    to_kafka = result("Apache Kafka", {sink.OURS: 20.0, sink.DEFAULT: 10.0, sink.BATCHED: 15.0, sink.DRAINED: 80.0})
    (found,) = sink._with_own_brokers([to_pylog, *others, to_kafka], [Work(MEMORY)], 100)
    assert found.case.name == "100 B, batch from memory, each to its own broker"
    ratios = [found.ratio(peer, sink.ROWS) for peer in (sink.DEFAULT, sink.BATCHED)]
    assert [ratio and ratio.median for ratio in ratios] == [3.0, 2.0]
    assert found.met(sink.ROWS)


def test_rows_in_memory_are_in_files_too_and_of_the_size_asked_for(spark: SparkSession) -> None:
    with sink_rows.prepared(spark, 100, 200, 1000) as rows:
        cached, stored = set(rows.cached.collect()), set(spark.read.parquet(rows.parquet).collect())
        assert cached < stored
        assert (len(cached), len(stored)) == (rows.count, rows.of_files.count) == (100, 200)
        assert spark.read.parquet(rows.parquet).select(F.input_file_name()).distinct().count() == sink_rows.FILES
    assert {len(row.value) for row in cached} == {1000}
    assert len({row.key for row in cached}) == len({row.value for row in cached}) == 100


class Broker:
    """Holds as many records as it is told to."""

    name = "pylog"
    bootstrap_servers = "h:1"

    def __init__(self, count: int) -> None:
        self._count = count

    @contextlib.contextmanager
    def topic(self, name: str) -> Iterator[str]:
        yield name

    def records_in(self, topic: str) -> int:
        return self._count


def held(count: int) -> RunningBroker:
    return cast(RunningBroker, Broker(count))


def write_none(*arguments: Any) -> dict[str, float]:
    return {}


def test_rows_that_do_not_stand_in_the_topic_are_no_figure(spark: SparkSession) -> None:
    rows = Rows(1000, 2000, 100, spark.range(1), "nowhere")
    assert sink._timed(spark, held(1000), rows, sink.WORKS[0], write_none, "noop", {})[sink.ROWS.name] > 0
    with pytest.raises(RuntimeError, match="999 records stand"):
        sink._timed(spark, held(999), rows, sink.WORKS[0], write_none, "noop", {})


def test_rows_that_python_sent_are_counted_too() -> None:
    rows = sink_table.Rows.made(10, 100)
    assert sink_table._timed(held(10), rows, write_none)[sink_table.ROWS.name] > 0
    with pytest.raises(RuntimeError, match="9 records stand"):
        sink_table._timed(held(9), rows, write_none)


def test_a_batch_that_wrote_nothing_at_a_trickle_is_found(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(source_trickle, "trickle", write_none)
    needed = source_trickle.WARM_UP_BATCHES + 5
    sink_trickle._trickle_on(spark, "pylog", held(needed), 5)
    with pytest.raises(RuntimeError, match=f"{needed - 1} records stand"):
        sink_trickle._trickle_on(spark, "pylog", held(needed - 1), 5)


class FullAtTimes:
    """A producer whose queue is full before every third record."""

    def __init__(self) -> None:
        self.produced: list[tuple[bytes | None, bytes]] = []
        self._has_room = True

    def produce(self, topic: str, value: bytes, key: bytes | None) -> None:
        if len(self.produced) % 3 == 2 and not self._has_room:
            raise BufferError
        self.produced.append((key, value))
        self._has_room = False

    def poll(self, seconds: float) -> None:
        self._has_room = True


@pytest.mark.parametrize("has_keys", [False, True])
def test_the_loop_waits_while_the_queue_is_full_and_leaves_no_row_out(has_keys: bool) -> None:
    keys, values = [b"k%d" % number for number in range(20)], [b"v%d" % number for number in range(20)]
    producer = FullAtTimes()
    sink_table.produce_all(cast(confluent_kafka.Producer, producer), "t", keys if has_keys else None, values)
    assert producer.produced == list(zip(keys if has_keys else [None] * 20, values, strict=True))


def test_the_table_holds_what_the_loop_sends() -> None:
    rows = sink_table.Rows.made(20, 100)
    assert rows.table.to_pydict() == {"key": rows.keys, "value": rows.values}
    assert {len(value) for value in rows.values} == {100}
    without = rows.without_keys()
    assert (without.table.to_pydict(), without.keys) == ({"value": rows.values}, None)


def test_send_table_and_the_loop_write_all_rows() -> None:
    with pylog.Broker() as own:
        assert own.pid is not None
        running = _running("pylog", own.bootstrap_servers, own.pid)
        results = measure(sink_table.cases(1000, running, Options(1, scale=0.001)), rounds=1)
    assert [result.failures for result in results] == [{}, {}]
