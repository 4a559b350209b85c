"""The options of the producer through a Spark write: what each one changes is seen from outside, in the log of the
topic or on the wire.

How long it waits is in test_sink_waits, TLS and SASL in test_secured_source. What send.buffer.bytes and
receive.buffer.bytes do only the system sees: here they are taken."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark")

from kafka.partitioner import murmur2

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.fetcher import fetch_range
from pylog.storage import codecs
from pylog.storage.batch import BatchHeader, walk
from tests.support.spark_errors import refusal
from tests.support.watching_proxy import PRODUCER_ID, WatchingProxy
from tests.support.wire_clients import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.connector

NewTopic = Callable[..., str]
Read = Callable[..., "DataFrame"]
Write = Callable[..., None]
Options = dict[str, str]

PARTITIONS = 4
ROWS = 240
# A row of 400 to 500 bytes, of words that come again and again, each time in another order.
WORDS = "array('alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta', 'eta', 'theta')"
VALUE = f"concat_ws(' ', transform(sequence(1, 80), n -> {WORDS}[pmod(hash(id, n), 8)])) value"
ROW_BYTES = 450


@pytest.fixture
def proxy(bootstrap_servers: str) -> Iterator[WatchingProxy]:
    with WatchingProxy(bootstrap_servers) as proxy:
        yield proxy


def rows_of(spark: "SparkSession", key: str = "id % 6", count: int = ROWS) -> "DataFrame":
    """In one task."""
    return spark.range(0, count, 1, 1).selectExpr(f"cast({key} as string) key", VALUE)


def batches_of(cluster: Cluster, topic: str) -> list[tuple[int, BatchHeader]]:
    """(partition, header) of all batches of the topic."""
    places = [(topic, partition) for partition in cluster.topic(topic).leaders]
    return [
        (partition, header)
        for (_, partition), end in sorted(cluster.latest(places).items())
        for found in fetch_range(cluster, topic, partition, 0, end)
        for _, header in walk(found.records)
    ]


def via(proxy: WatchingProxy, options: Options) -> Options:
    return {"kafka.bootstrap.servers": proxy.bootstrap_servers, **options}


# Who has a batch before it counts, and whether it may be written twice


@pytest.mark.parametrize(
    ("options", "acks", "is_idempotent"),
    [
        pytest.param({}, -1, True, id="nothing set"),
        pytest.param({"kafka.acks": "all"}, -1, True, id="all"),
        pytest.param({"kafka.acks": "-1"}, -1, True, id="all, as a number"),
        pytest.param({"kafka.acks": "1"}, 1, False, id="the leader"),
        pytest.param({"kafka.acks": "0"}, 0, False, id="nobody"),
        pytest.param({"kafka.enable.idempotence": "true"}, -1, True, id="idempotence"),
        pytest.param({"kafka.enable.idempotence": "false"}, -1, False, id="no idempotence"),
        pytest.param({"kafka.retries": "0"}, -1, False, id="no retries, so no idempotence"),
        pytest.param({"kafka.retries": "5"}, -1, True, id="retries"),
    ],
)
def test_batches_are_acknowledged_and_numbered_as_it_is_asked(
    spark: "SparkSession",
    cluster: Cluster,
    new_topic: NewTopic,
    write: Write,
    proxy: WatchingProxy,
    options: Options,
    acks: int,
    is_idempotent: bool,
) -> None:
    topic = new_topic()
    write(rows_of(spark), topic, **via(proxy, options))
    assert {one.produce.acks for one in proxy.produced if one.produce} == {acks}
    assert bool(proxy.of(PRODUCER_ID)) == is_idempotent
    assert eventually(lambda: cluster.latest([(topic, 0)]) == {(topic, 0): ROWS}), "without acks nobody waits for it"
    assert {header.producer_id >= 0 for _, header in batches_of(cluster, topic)} == {is_idempotent}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param({}, ("pylog", 30_000), id="nothing set"),
        pytest.param({"kafka.client.id": "nightly load"}, ("nightly load", 30_000), id="client.id"),
        pytest.param({"kafka.request.timeout.ms": "12345"}, ("pylog", 12_345), id="request.timeout.ms"),
        pytest.param(
            {"kafka.send.buffer.bytes": "20000", "kafka.receive.buffer.bytes": "20000"}, ("pylog", 30_000), id="buffers"
        ),
    ],
)
def test_the_broker_is_told_who_writes_and_how_long_it_has(
    spark: "SparkSession", new_topic: NewTopic, write: Write, proxy: WatchingProxy, options: Options, told: object
) -> None:
    write(rows_of(spark), new_topic(), **via(proxy, options))
    assert {(one.client_id, one.produce.timeout_ms) for one in proxy.produced if one.produce} == {told}


# Where rows go


class Placed(NamedTuple):
    rows: Counter[int]  # by partition
    keys: dict[bytes, set[int]]  # the partitions of each


def placed(read: Read, topic: str) -> Placed:
    found, keys = read(topic).select("partition", "key").collect(), defaultdict(set)
    for row in found:
        keys[bytes(row["key"])].add(row["partition"])
    return Placed(Counter(row["partition"] for row in found), keys)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="nothing set"),
        pytest.param({"kafka.partitioner.class": "default"}, id="default"),
        pytest.param({"kafka.partitioner.ignore.keys": "false"}, id="keys are not ignored"),
    ],
)
def test_keys_decide(spark: "SparkSession", new_topic: NewTopic, read: Read, write: Write, options: Options) -> None:
    topic = new_topic(partitions=PARTITIONS)
    write(rows_of(spark), topic, **options, **{"kafka.batch.size": "4096"})
    keys = [b"%d" % number for number in range(6)]
    assert placed(read, topic).keys == {key: {(murmur2(key) & 0x7FFFFFFF) % PARTITIONS} for key in keys}


@pytest.mark.parametrize("name", ["RoundRobinPartitioner", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_each_row_goes_to_the_next_partition(
    spark: "SparkSession", new_topic: NewTopic, read: Read, write: Write, name: str
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    write(rows_of(spark, key="1"), topic, **{"kafka.partitioner.class": name})
    assert placed(read, topic).rows == dict.fromkeys(range(PARTITIONS), ROWS // PARTITIONS)


def test_keys_that_are_ignored_leave_rows_together_until_a_batch_is_full(
    spark: "SparkSession", cluster: Cluster, new_topic: NewTopic, read: Read, write: Write
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    options = {"kafka.partitioner.ignore.keys": "true", "kafka.batch.size": str(20 * ROW_BYTES)}
    write(rows_of(spark, key="1"), topic, **options)
    assert placed(read, topic).rows.keys() == set(range(PARTITIONS))
    assert max(header.record_count for _, header in batches_of(cluster, topic)) > 10


# What batches are made of


def log_bytes(cluster: Cluster, topic: str) -> int:
    return sum(header.size_bytes for _, header in batches_of(cluster, topic))


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        pytest.param("none", [{}], id="none"),
        pytest.param("snappy", [{}], id="snappy"),
        pytest.param("gzip", [{"kafka.compression.gzip.level": level} for level in ("1", "9")], id="gzip"),
        # 9 is Kafka's default, and stands for the fast method.
        pytest.param("lz4", [{"kafka.compression.lz4.level": level} for level in ("9", "17")], id="lz4"),
        pytest.param("zstd", [{"kafka.compression.zstd.level": level} for level in ("-50", "19")], id="zstd"),
    ],
)
def test_batches_have_their_codec_and_are_smaller_with_a_higher_level(
    spark: "SparkSession",
    cluster: Cluster,
    new_topic: NewTopic,
    read: Read,
    write: Write,
    codec: str,
    levels: list[Options],
) -> None:
    sizes = []
    for level in levels:
        topic = new_topic()
        write(rows_of(spark), topic, **{"kafka.compression.type": codec}, **level)
        assert {header.codec for _, header in batches_of(cluster, topic)} == {codecs.CODEC_BY_NAME[codec]}
        assert read(topic).count() == ROWS
        sizes.append(log_bytes(cluster, topic))
    assert sizes == sorted(set(sizes), reverse=True)
    assert (sizes[0] > ROWS * 400) == (codec == "none")


@pytest.mark.parametrize(
    ("options", "bytes_max"),
    [
        pytest.param({"kafka.batch.size": "5000"}, 5_000, id="batch.size"),
        pytest.param({"kafka.batch.size": "0"}, 2 * ROW_BYTES, id="a batch for each row"),
        pytest.param({"kafka.max.request.size": "6000"}, 6_000, id="max.request.size"),
        pytest.param({"kafka.buffer.memory": "40000"}, 11_000, id="a quarter of buffer.memory is encoded at once"),
    ],
)
def test_batches_are_as_large_as_they_may_be(
    spark: "SparkSession", cluster: Cluster, new_topic: NewTopic, write: Write, options: Options, bytes_max: int
) -> None:
    topic = new_topic()
    write(rows_of(spark), topic, **options)
    sizes = [header.size_bytes for _, header in batches_of(cluster, topic)]
    assert max(sizes) <= bytes_max
    assert max(sizes) > bytes_max / 2 or "0" in options.values()


def test_requests_are_as_large_as_they_may_be(
    spark: "SparkSession", new_topic: NewTopic, write: Write, proxy: WatchingProxy
) -> None:
    """With the batches of several partitions."""
    sizes = {"kafka.batch.size": "3000", "kafka.max.request.size": "7000"}
    write(rows_of(spark), new_topic(partitions=PARTITIONS), **via(proxy, sizes))
    assert all(one.size_bytes <= 7_000 + ROW_BYTES for one in proxy.produced)  # what is not records is not counted
    assert max(len(one.produce.partitions) for one in proxy.produced if one.produce) == 2


# What nobody knows


@pytest.mark.parametrize(
    ("slip", "meant", "value"),
    [
        pytest.param("kafka.batch.sice", "kafka.batch.size", "1000", id="with its prefix"),
        pytest.param("linger.ms", "kafka.linger.ms", "1", id="a prefix forgotten"),
    ],
)
def test_a_slip_is_refused_with_the_name_that_would_be_taken(
    spark: "SparkSession", new_topic: NewTopic, write: Write, slip: str, meant: str, value: str
) -> None:
    said = refusal(lambda: write(rows_of(spark), new_topic(), **{slip: value}))
    assert f"{slip} is not an option: did you mean {meant}?" in said
    write(rows_of(spark), new_topic(), **{meant: value})
