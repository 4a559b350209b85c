"""How long the sink waits and how often it tries, by the options of its producer, through Spark: seen by what goes over
the wire meanwhile, and by the error in which it ends."""

import re
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.support.spark_errors import refusal
from tests.support.watching_proxy import METADATA, Manner, WatchingProxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.connector, pytest.mark.timeout(100)]  # less than the two minutes of delivery.timeout.ms

NewTopic = Callable[..., str]
Write = Callable[..., None]
Options = dict[str, str]

ROWS = 12
ROW_BYTES = 10_000
PARTITIONS = 4
PAUSE_MS = 150
SOON = {"kafka.request.timeout.ms": "400", "kafka.delivery.timeout.ms": "900"}


@pytest.fixture
def proxy(bootstrap_servers: str) -> Iterator[WatchingProxy]:
    with WatchingProxy(bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def rows(spark: "SparkSession") -> "DataFrame":
    """In one task."""
    return spark.range(0, ROWS, 1, 1).selectExpr(f"repeat('x', {ROW_BYTES}) value")


def via(proxy: WatchingProxy, options: Options) -> Options:
    return {"kafka.bootstrap.servers": proxy.bootstrap_servers, **options}


# While all is well


@pytest.fixture
def paced(
    spark: "SparkSession", new_topic: NewTopic, write: Write, proxy: WatchingProxy
) -> Iterator[Callable[..., None]]:
    """`paced(options)`: a row for each partition, one after the other with a pause between them."""
    rows = spark.range(0, PARTITIONS, 1, 1).selectExpr(
        "repeat('x', 70000) value",  # less stays in a buffer of Spark's
        "cast(id as int) partition",
        f"java_method('java.lang.Thread', 'sleep', {PAUSE_MS}L) pause",
    )
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, "1")
    write(spark.sql("select 'v' value"), new_topic())  # there is a worker: it does not find all of the rows at once
    yield lambda options: write(rows, new_topic(partitions=PARTITIONS), **via(proxy, options))
    spark.conf.set(name, before)


@pytest.mark.parametrize(
    ("linger_ms", "waits"), [pytest.param("0", False, id="no time"), pytest.param("60000", True, id="a minute")]
)
def test_a_batch_that_is_not_full_waits_for_others_and_not_beyond_the_last_row(
    paced: Callable[..., None], proxy: WatchingProxy, linger_ms: str, waits: bool
) -> None:
    paced({"kafka.linger.ms": linger_ms})
    sent = [len(one.produce.partitions) for one in proxy.produced if one.produce]
    assert sum(sent) == PARTITIONS
    assert (len(sent) == 1) == waits


def test_leaders_are_asked_for_again_when_what_is_known_is_too_old(
    paced: Callable[..., None], proxy: WatchingProxy
) -> None:
    paced({})
    at_first = len(proxy.of(METADATA))
    paced({"kafka.metadata.max.age.ms": "0"})
    assert len(proxy.of(METADATA)) - at_first > at_first


def test_a_connection_that_was_idle_for_too_long_is_not_used_again(
    paced: Callable[..., None], proxy: WatchingProxy
) -> None:
    paced({})
    assert len({one.connection for one in proxy.produced}) == 1
    paced({"kafka.connections.max.idle.ms": "1"})
    assert len({one.connection for one in proxy.produced}) > 2


@pytest.mark.parametrize("limit", [1, 2, 5, 7])
def test_so_many_requests_are_in_flight(
    rows: "DataFrame", new_topic: NewTopic, write: Write, proxy: WatchingProxy, limit: int
) -> None:
    proxy.manner = Manner.HOLD
    options = {"kafka.max.in.flight.requests.per.connection": str(limit), "kafka.batch.size": str(ROW_BYTES + 200)}
    write(rows, new_topic(), **via(proxy, options))
    assert len(proxy.produced) == ROWS
    assert max(one.in_flight for one in proxy.produced) == limit


# When nobody answers


@pytest.mark.parametrize(
    ("options", "manner", "tried", "said"),
    [
        pytest.param({"kafka.retries": "0"}, Manner.CUT, range(1, 2), "after retries=0", id="no retries"),
        pytest.param({"kafka.retries": "2"}, Manner.CUT, range(3, 4), "after retries=2", id="retries"),
        pytest.param(SOON, Manner.CUT, range(2, 100), "within delivery.timeout.ms=900", id="delivery.timeout.ms"),
        pytest.param(
            SOON | {"kafka.retry.backoff.ms": "60000", "kafka.retry.backoff.max.ms": "60000"},
            Manner.CUT,
            range(1, 2),
            "within delivery.timeout.ms=900",
            id="retry.backoff.ms",
        ),
        pytest.param(
            SOON | {"kafka.retry.backoff.ms": "60000", "kafka.retry.backoff.max.ms": "10"},
            Manner.CUT,
            range(10, 1000),
            "within delivery.timeout.ms=900",
            id="retry.backoff.max.ms",
        ),
        pytest.param(
            {"kafka.request.timeout.ms": "300", "kafka.delivery.timeout.ms": "1500"},
            Manner.SILENCE,
            range(2, 6),
            "no answer to Produce within request.timeout.ms",
            id="request.timeout.ms",
        ),
    ],
)
def test_what_is_not_acknowledged_is_sent_again_so_often_and_so_long(
    rows: "DataFrame",
    new_topic: NewTopic,
    write: Write,
    proxy: WatchingProxy,
    options: Options,
    manner: Manner,
    tried: range,
    said: str,
) -> None:
    topic, proxy.manner = new_topic(), manner
    error = refusal(lambda: write(rows, topic, **via(proxy, options)))
    assert f"{ROWS} records for {topic}-0 were not written" in error
    assert said in error
    assert len(proxy.produced) in tried


def test_a_task_waits_for_room_so_long(
    rows: "DataFrame", new_topic: NewTopic, write: Write, proxy: WatchingProxy
) -> None:
    proxy.manner = Manner.SILENCE
    options = {"kafka.buffer.memory": str(2 * ROW_BYTES), "kafka.max.block.ms": "300"}
    error = refusal(lambda: write(rows, new_topic(), **via(proxy, options)))
    assert f"no room in buffer.memory={2 * ROW_BYTES} within max.block.ms=300" in error


# When nobody is there


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def mute() -> Iterator[str]:
    """An address where connections do not come about: as many wait already as the system lets."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield f"127.0.0.1:{full.getsockname()[1]}"
        for one in waiting:
            one.close()


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        pytest.param({"kafka.default.api.timeout.ms": "1"}, range(1, 3), id="no time"),
        pytest.param({"kafka.default.api.timeout.ms": "900"}, range(3, 20), id="some time"),
        pytest.param({"kafka.retries": "1"}, range(2, 3), id="one more attempt"),
    ],
)
def test_a_cluster_is_looked_for_so_often_and_so_long(
    rows: "DataFrame", write: Write, nobody: str, options: Options, attempts: range
) -> None:
    error = refusal(lambda: write(rows, "t", **{"kafka.bootstrap.servers": nobody}, **options))
    assert f"no broker could be reached ({nobody}:" in error
    assert attempts_in(error) in attempts


def test_a_connection_that_does_not_come_about_is_given_up_after_its_time(
    rows: "DataFrame", write: Write, mute: str
) -> None:
    """Each of several attempts within the time of the call; by default the first one would last longer than that."""
    options = {"kafka.default.api.timeout.ms": "900", "kafka.socket.connection.setup.timeout.ms": "50"}
    error = refusal(lambda: write(rows, "t", **{"kafka.bootstrap.servers": mute}, **options))
    assert "no connection within socket.connection.setup.timeout.ms" in error
    assert attempts_in(error) > 1


def attempts_in(error: str) -> int:
    found = re.search(r"given up after (\d+) attempts", error)
    assert found, error
    return int(found[1])


def test_one_address_that_answers_is_enough(
    rows: "DataFrame", new_topic: NewTopic, write: Write, bootstrap_servers: str, nobody: str
) -> None:
    write(rows, new_topic(), **{"kafka.bootstrap.servers": f"{nobody},{bootstrap_servers}"})
