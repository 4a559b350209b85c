"""`kafka.isolation.level=read_committed`: what transactions left, read as Spark's own connector reads it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark")

import pylog
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from tests.conftest import RunningBroker
from tests.support.apache_kafka import ApacheKafka
from tests.support.pylog_written import Told, fill, manager_of
from tests.support.query_rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

NOW_MS = 1_700_000_000_000
TOPIC = "transactions"
SECONDS_MAX = 60.0
COMMITTED = {"kafka.isolation.level": "read_committed"}


class Written(NamedTuple):
    servers: str
    all: list[int]  # the offsets of all records that are no markers, open transactions included
    committed: list[int]  # of those that a reader of committed records gets
    stable: int  # where the first open transaction begins


@pytest.fixture(scope="module")
def written(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Transactions of two producers that overlap, committed and aborted, and one that stays open."""
    if isinstance(broker, ApacheKafka):
        yield _written_through(broker.bootstrap_servers)
        return
    folder = tmp_path_factory.mktemp("transactions")  # our broker serves transactions, and does not take any yet
    with pylog.Broker(folder) as own:
        cluster = _cluster(own.bootstrap_servers)
        cluster.create_topic(TOPIC, 1, 1)
        topic_id = cluster.topic_id(TOPIC)
    manager = manager_of(folder)
    told = Told(manager.open(TOPIC, 0, topic_id), NOW_MS)
    fill(TOPIC, told, manager)
    stable = told.log.last_stable_offset
    manager.close()
    with pylog.Broker(folder, config={"log.retention.ms": -1}) as own:
        offsets, committed = ([record.offset for record in some] for some in (told.records, told.committed))
        yield Written(own.bootstrap_servers, offsets, committed, stable)


def _cluster(servers: str) -> Cluster:
    return Cluster(ClientConfig.parse({"bootstrap.servers": servers}))


def _written_through(servers: str) -> Written:
    from confluent_kafka import Producer

    def producer(name: str) -> Producer:
        made = Producer({"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 600_000})
        made.init_transactions(SECONDS_MAX)
        return made

    offsets: dict[str, list[int]] = {"committed": [], "aborted": [], "open": []}

    def write(by: Producer, fate: str, count: int) -> None:
        """One after the other is on the disk: transactions overlap as the calls do."""
        for number in range(count):
            by.produce(TOPIC, b"%d" % number, on_delivery=lambda _, at: offsets[fate].append(at.offset()))
        assert by.flush(SECONDS_MAX) == 0

    _cluster(servers).create_topic(TOPIC, 1, 1)
    one, two, never = producer("one"), producer("two"), producer("never")
    for round_number in range(6):
        one.begin_transaction()
        two.begin_transaction()
        write(one, "committed", 5)
        write(two, "aborted", 4)
        write(one, "committed", 1)
        two.abort_transaction(SECONDS_MAX)
        if round_number % 2:
            two.begin_transaction()
            write(two, "committed", 3)
            two.commit_transaction(SECONDS_MAX)
        one.commit_transaction(SECONDS_MAX)
    never.begin_transaction()
    write(never, "open", 3)
    one.begin_transaction()
    write(one, "open", 2)  # behind the open one: nobody who reads what is committed sees it yet
    one.commit_transaction(SECONDS_MAX)
    return Written(servers, sorted(chain(*offsets.values())), sorted(offsets["committed"]), min(offsets["open"]))


@pytest.fixture
def offsets(spark: "SparkSession", written: Written) -> Callable[..., list[int]]:
    def offsets(format: str = "pylog", **options: str) -> list[int]:
        reader = spark.read.format(format).option("kafka.bootstrap.servers", written.servers)
        rows: DataFrame = reader.option("subscribe", TOPIC).options(**options).load()
        return sorted(row.offset for row in rows.select("offset").collect())

    return offsets


def test_only_committed_records_before_the_first_open_transaction_are_read(
    written: Written, offsets: Callable[..., list[int]]
) -> None:
    assert len(written.committed) < len(written.all)
    assert offsets(**COMMITTED) == written.committed


def test_by_default_all_records_are_read_but_no_markers(written: Written, offsets: Callable[..., list[int]]) -> None:
    assert offsets() == written.all


def test_every_level_reads_as_sparks_connector_does(
    spark_kafka: "SparkSession", offsets: Callable[..., list[int]]
) -> None:
    for level in ("read_committed", "read_uncommitted"):
        options = {"kafka.isolation.level": level}
        assert offsets("pylog", **options) == offsets("kafka", **options)


def test_a_range_may_begin_and_end_within_transactions(written: Written, offsets: Callable[..., list[int]]) -> None:
    for start in range(0, written.stable, 7):
        end = min(start + 30, written.stable)
        given = {"startingOffsets": {TOPIC: {"0": start}}, "endingOffsets": {TOPIC: {"0": end}}}
        options = {name: json.dumps(value) for name, value in given.items()}
        small = {"kafka.max.partition.fetch.bytes": "200"}
        assert offsets(**COMMITTED, **options, **small) == [at for at in written.committed if start <= at < end]


def test_a_stream_ends_at_the_last_stable_offset(
    spark: "SparkSession", written: Written, tmp_path: Path, either: str
) -> None:
    stream = spark.readStream.format(either).option("kafka.bootstrap.servers", written.servers).options(**COMMITTED)
    rows = stream.options(subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger="20").load()
    writer = (
        rows.select("offset").writeStream.format("memory").queryName(f"committed_{tmp_path.name}".replace("-", "_"))
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    found = sorted(row.offset for row in spark.table(query.name).collect())
    assert found == written.committed
    assert json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])[TOPIC]["0"] == written.stable


@pytest.fixture
def rows(spark: "SparkSession", written: Written, tmp_path: Path) -> Rows:
    rows = Rows(spark, written.servers, tmp_path)
    rows.shown = "cast(offset as string)"
    return rows


def test_a_stream_of_committed_records_may_go_on_with_all_of_them(written: Written, rows: Rows, either: str) -> None:
    rows.run(None, either, subscribe=TOPIC, **COMMITTED)
    rows.run(None, either, subscribe=TOPIC)
    expected = [*written.committed, *(offset for offset in written.all if offset >= written.stable)]
    assert rows.found(either) == Counter(map(str, expected))


def test_a_stream_that_has_read_open_transactions_has_read_what_is_not_there_for_committed_records(
    written: Written, rows: Rows, either: str
) -> None:
    rows.run(None, either, subscribe=TOPIC)
    said = rows.failure(either, subscribe=TOPIC, **COMMITTED)
    assert (f"the log ends at {written.stable} now" if either == "pylog" else "data may have been") in said
    assert rows.run(None, either, subscribe=TOPIC, failOnDataLoss="false", **COMMITTED) == []
    rows.run(None, either, subscribe=TOPIC)
    again = [offset for offset in written.all if offset >= written.stable]
    assert rows.found(either) == Counter(map(str, [*written.all, *again])), "it went back to the first that is open"
