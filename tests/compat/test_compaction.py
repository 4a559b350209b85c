"""A compacted topic from end to end: clients write, the broker compacts behind their backs, clients read the latest."""

import random
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest

import pylog
from tests.support.foreign_clients import CLIENTS, TIMEOUT_SECONDS, ForeignRecord, Refused, _until

KEYS = 20
ROUNDS = 30
COMMITS = 400
SEGMENT_BYTES = 4000
DELETED = 3
NOW_MS = 1_700_000_000_000
SMALL_AND_SOON = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
}


@pytest.fixture
def broker() -> Iterator[pylog.Broker]:
    config = {
        "log.cleaner.backoff.ms": 100,
        "log.initial.task.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": SEGMENT_BYTES,
    }
    with pylog.Broker(config=config) as broker:
        yield broker


def records_in(servers: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of all that a reader from the beginning gets. It asks for so much that it takes the second
    answer without records for an error."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.message.max.bytes": 1_000_000_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value()))


def value_of(number: int, key: int) -> bytes | None:
    """That no codec makes smaller."""
    return None if key == DELETED and number > 5 else random.Random(number * KEYS + key).randbytes(40)


def sealed_bytes(broker: pylog.Broker, partition: str) -> int:
    """How much of the partition lies in segments that are not written to any more."""
    paths = sorted(Path(broker.data, partition).glob("*.log"))[:-1]
    try:
        return sum(path.stat().st_size for path in paths)
    except FileNotFoundError:  # compaction is putting new ones in place
        return sealed_bytes(broker, partition)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_readers_get_the_latest_record_of_every_key(broker: pylog.Broker, codec: str) -> None:
    servers, client = broker.bootstrap_servers, CLIENTS["confluent-kafka"]
    client.create_topic(servers, "t", 1, config=SMALL_AND_SOON)
    for number in range(ROUNDS):
        records = [ForeignRecord(b"key-%d" % key, value_of(number, key), (), NOW_MS) for key in range(KEYS)]
        client.produce(servers, "t", records, codec=codec)
    written = KEYS * ROUNDS

    def is_compacted() -> bool:
        found = records_in(servers, "t")
        assert found[-1][0] == written - 1
        return len(found) < written / 3

    _until(is_compacted, "compaction")
    found = records_in(servers, "t")
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    for key in range(KEYS):
        values = [value for _, name, value in found if name == b"key-%d" % key]
        assert values[-1:] == [value_of(ROUNDS - 1, key)] or (key == DELETED and not values)
    for offset, name, value in found:  # each is where and what it was when it was written
        number, key = divmod(offset, KEYS)
        assert name == b"key-%d" % key
        assert value == value_of(number, key)
    broker.kill()
    broker.start()
    assert records_in(servers, "t")[-1] == found[-1]
    assert {name for _, name, _ in records_in(servers, "t")} >= {name for _, name, _ in found} - {b"key-%d" % DELETED}


def test_commits_are_compacted_and_there_after_a_kill(broker: pylog.Broker) -> None:
    servers, client = broker.bootstrap_servers, CLIENTS["confluent-kafka"]
    client.create_topic(servers, "t", 1)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g"})
    for offset in range(1, COMMITS + 1):
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()
    _until(lambda: sealed_bytes(broker, "__consumer_offsets-0") < SEGMENT_BYTES, "compaction of the commits")
    broker.kill()
    broker.start()
    assert client.committed(servers, "g", "t", [0]) == {0: COMMITS}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_record_without_a_key_is_refused(broker: pylog.Broker, name: str) -> None:
    servers = broker.bootstrap_servers
    CLIENTS[name].create_topic(servers, "t", 1, config={"cleanup.policy": "compact"})
    with pytest.raises((Refused, kafka.errors.KafkaError)) as refused:
        CLIENTS[name].produce(servers, "t", [ForeignRecord(None, b"v", (), NOW_MS)])
    if name == "confluent-kafka":  # the others have no number for it
        assert refused.value.code == 87
    assert CLIENTS[name].produce(servers, "t", [ForeignRecord(b"k", b"v", (), NOW_MS)]) == [0]
