"""Records that go after a batch was planned and before one of its tasks comes to them."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.support.query_rows import DEADLINE_S, records
from tests.support.spark_errors import failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.connector, pytest.mark.faults]

PassOn = Callable[[Iterator[Any]], Iterator[Any]]
RECORDS, DELETED, REMADE = "records are deleted", "the topic is deleted", "the topic is made anew"
ALL, GONE = 10, 4  # the records of the topic, and those that are deleted of them


def then(servers: str, topic: str, what: str, is_done: Path) -> PassOn:
    """For `mapInArrow`: gives rows on as they are, and at the end of the first task that has one `what` happens to
    the topic. Spark has two cores here: its third task begins when one of the first two has ended."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        import fcntl

        from confluent_kafka import Producer, TopicPartition
        from confluent_kafka.admin import AdminClient, NewTopic

        yield from batches
        with open(f"{is_done}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the other of the first two waits for it
            if is_done.exists():
                return
            admin = AdminClient({"bootstrap.servers": servers})
            if what == RECORDS:
                (deleted,) = admin.delete_records([TopicPartition(topic, 0, GONE)]).values()
                deleted.result(30)
            else:
                admin.delete_topics([topic])[topic].result(30)
            if what == REMADE:
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
                producer = Producer({"bootstrap.servers": servers})
                for number in range(ALL):
                    producer.produce(topic, f"another/{number}".encode(), partition=0)
                assert producer.flush(30) == 0
            is_done.touch()

    return pass_on


@pytest.fixture
def topics(new_topic: Callable[..., str], produce: Callable[..., None]) -> tuple[str, str]:
    """(one whose partitions the first two tasks read, one that the third reads)."""
    kept, last = sorted(new_topic(partitions=2) for _ in range(2))
    produce(kept, 0, 5)
    produce(kept, 1, 5)
    produce(last, 0, ALL)
    return kept, last


@pytest.mark.usefixtures("at_length")
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        pytest.param("batch", RECORDS, id="records, a batch"),
        pytest.param("stream", RECORDS, id="records, a stream"),
        pytest.param("batch", DELETED, id="the topic, a batch"),
        pytest.param("stream", DELETED, id="the topic, a stream"),
        pytest.param("batch", REMADE, id="the topic and another comes, a batch"),
    ],
)
def test_what_goes_before_a_task_comes_to_it_fails_the_task_or_is_left_out(
    spark: "SparkSession",
    bootstrap_servers: str,
    topics: tuple[str, str],
    tmp_path: Path,
    kind: str,
    what: str,
    fail_on_data_loss: str,
) -> None:
    kept, last = topics
    source: Any = spark.read if kind == "batch" else spark.readStream
    source = (
        source.format("pylog")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", f"{kept},{last}")
    )
    loaded = source.option("startingOffsets", "earliest").option("failOnDataLoss", fail_on_data_loss).load()
    rows = loaded.selectExpr("concat(topic, ':', cast(value as string)) value")
    rows = rows.mapInArrow(then(bootstrap_servers, last, what, tmp_path / "is-done"), "value string")

    if fail_on_data_loss == "true":
        said = failure(lambda: write(rows, tmp_path))
        assert loss(last, what) in said
        assert "set failOnDataLoss to false" in said
    else:
        write(rows, tmp_path)
        left = records(last, 0, range(GONE, ALL)) if what == RECORDS else Counter()
        found = Counter(row["value"] for row in spark.read.parquet(str(tmp_path / "rows")).collect())
        assert found == records(kept, 0, range(5)) + records(kept, 1, range(5)) + left


def write(rows: "DataFrame", folder: Path) -> None:
    path = str(folder / "rows")
    if not rows.isStreaming:
        rows.write.parquet(path)
        return
    writer = rows.writeStream.format("parquet").option("path", path)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)


def loss(topic: str, what: str) -> str:
    if what == RECORDS:
        return f"{topic}-0: the offsets [0, {GONE}) are gone: the log starts at {GONE} now; they were deleted"
    whole = f"{topic}-0: the offsets [0, {ALL}) are gone: the topic '{topic}' "
    return whole + ("does not exist any more; it was deleted" if what == DELETED else "was deleted and made anew")
