"""The client on a broker that it knows by its address only: pylog's own, or a real Apache Kafka."""

from collections.abc import Callable

import pytest

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.errors import DeliveryFailed, OffsetOutOfRange, TopicRemade, UnknownTopic
from pylog.connector.client.fetcher import fetch_range
from pylog.connector.client.producer import RecordProducer
from pylog.storage.batch import walk
from pylog.storage.records import Record, decode_batch, encode_batch

pytestmark = pytest.mark.connector
Connect = Callable[..., Cluster]
NewTopic = Callable[..., str]


def batch_of(values: list[bytes], timestamp_ms: int = 1_700_000_000_000) -> bytearray:
    return encode_batch([Record(n, timestamp_ms, None, value) for n, value in enumerate(values)])


def values_of(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> list[bytes | None]:
    return [
        record.value
        for fetched in fetch_range(cluster, topic, partition, start, end)
        for position, header in walk(fetched.records)
        for record in decode_batch(fetched.records[position : position + header.size_bytes])
        if start <= record.offset < end
    ]


def write(cluster: Cluster, topic: str, count: int) -> None:
    """As many batches of one record."""
    with RecordProducer(cluster.config) as producer:
        for n in range(count):
            producer.send_batch(topic, 0, batch_of([b"%d" % n]), 1)


@pytest.mark.parametrize("acks", ["all", "1"])
@pytest.mark.parametrize("fetch_bytes", ["1", "5000", "4194304"])
def test_what_was_sent_comes_back_in_order(
    bootstrap_servers: str, connect: Connect, new_topic: NewTopic, acks: str, fetch_bytes: str
) -> None:
    topic = new_topic(partitions=3)
    cluster = connect(bootstrap_servers, acks=acks, max_partition_fetch_bytes=fetch_bytes)
    sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    with RecordProducer(cluster.config) as producer:
        for n in range(60):
            values = [b"%d-%d" % (n, m) * 20 for m in range(7)]
            producer.send_batch(topic, n % 3, batch_of(values), len(values))
            sent[n % 3] += values
    for partition, values in sent.items():
        assert cluster.latest([(topic, partition)]) == {(topic, partition): len(values)}
        assert values_of(cluster, topic, partition, 0, len(values)) == values
        assert values_of(cluster, topic, partition, 11, 23) == values[11:23]


def test_acks_0_arrives_too(bootstrap_servers: str, connect: Connect, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(connect(bootstrap_servers, acks="0"), topic, 10)
    assert values_of(connect(bootstrap_servers), topic, 0, 0, 10) == [b"%d" % n for n in range(10)]


def test_offsets_by_timestamp(bootstrap_servers: str, connect: Connect, new_topic: NewTopic) -> None:
    topic = new_topic()
    cluster = connect(bootstrap_servers)
    with RecordProducer(cluster.config) as producer:
        for n in range(5):
            producer.send_batch(topic, 0, batch_of([b"a", b"b"], 1_700_000_000_000 + n * 1000), 2)
    place = topic, 0
    for timestamp_ms, offset in [(0, 0), (1_700_000_000_000, 0), (1_700_000_001_500, 4), (1_700_000_004_001, -1)]:
        assert cluster.list_offsets({place: timestamp_ms}) == {place: offset}
    assert cluster.newest_times_ms([place, (new_topic(), 0)]) == {place: 1_700_000_004_000}


def test_all_topics_are_listed_but_the_clusters_own(
    bootstrap_servers: str, connect: Connect, new_topic: NewTopic
) -> None:
    cluster = connect(bootstrap_servers)
    cluster.commit_offsets(f"group-of-{new_topic()}", {(new_topic(), 0): 3})  # makes __consumer_offsets
    one, two = new_topic(), new_topic(partitions=3)
    for topic in (one, two):
        cluster.partitions(topic)  # waits until the broker knows it
    cluster.expire_names()
    names = cluster.topic_names()
    assert {one, two} <= set(names)
    assert names == sorted(names)
    assert not any(name.startswith("__") for name in names)
    assert cluster.partitions(two) == [0, 1, 2]
    three = new_topic()
    cluster.partitions(three)
    assert three not in cluster.topic_names()  # what is known is believed for a while
    cluster.expire_names()
    assert three in cluster.topic_names()


def test_group_offsets(bootstrap_servers: str, connect: Connect, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    cluster = connect(bootstrap_servers)
    group = f"group-of-{topic}"
    assert cluster.committed_offsets(group) == {}
    cluster.commit_offsets(group, {(topic, 0): 3, (topic, 1): 0}, "made by a test")
    cluster.commit_offsets(group, {(topic, 0): 4})
    assert cluster.committed_offsets(group) == {(topic, 0): 4, (topic, 1): 0}
    assert cluster.committed_offsets(group, [(topic, 1)]) == {(topic, 1): 0}


def test_topics_come_and_go(bootstrap_servers: str, connect: Connect, new_topic: NewTopic) -> None:
    cluster = connect(bootstrap_servers)
    topic = f"{new_topic()}-too"
    cluster.create_topic(topic, 3)
    assert cluster.partitions(topic) == [0, 1, 2]
    first_id = cluster.topic_id(topic)
    cluster.delete_topic(topic)
    with pytest.raises(UnknownTopic):
        cluster.delete_topic(topic)
    cluster.create_topic(topic)
    assert cluster.topic_id(topic) != first_id


def test_a_topic_that_is_made_anew_in_the_middle_of_a_read_is_not_read_on(
    bootstrap_servers: str, connect: Connect, new_topic: NewTopic
) -> None:
    """Though the reader's metadata is of the old one still."""
    cluster, reader = connect(bootstrap_servers), connect(bootstrap_servers, max_partition_fetch_bytes="1")
    topic = new_topic()
    write(cluster, topic, 5)
    topic_id = reader.topic_id(topic)
    reading = fetch_range(reader, topic, 0, 0, 5, topic_id=topic_id)
    assert next(reading).next_offset == 1
    assert next(reading).next_offset == 2, "the third is asked for by now"
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1, 1)
    write(cluster, topic, 9)
    with pytest.raises(TopicRemade, match=f"its id was {topic_id} and is"):
        list(reading)


def test_an_offset_beyond_the_log(bootstrap_servers: str, connect: Connect, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(OffsetOutOfRange, match=r"it holds \[0, 0\)"):
        next(fetch_range(connect(bootstrap_servers), topic, 0, 5, 10))


def test_a_batch_too_large_for_its_topic_says_which_option_to_raise(
    bootstrap_servers: str, connect: Connect, new_topic: NewTopic
) -> None:
    topic = new_topic(**{"max.message.bytes": "10000"})
    with RecordProducer(connect(bootstrap_servers).config) as producer:
        failed = producer.send_batch(topic, 0, batch_of([b"x" * 20_000]), 1)
        with pytest.raises(DeliveryFailed, match=r"raise max\.message\.bytes of the topic"):
            failed.result(30)


def test_a_batch_larger_than_a_fetch_arrives_whole(
    bootstrap_servers: str, connect: Connect, new_topic: NewTopic
) -> None:
    topic = new_topic()
    cluster = connect(bootstrap_servers, max_partition_fetch_bytes="1000")
    values = [bytes([n]) * 500_000 for n in range(3)]
    with RecordProducer(cluster.config) as producer:
        for value in values:
            producer.send_batch(topic, 0, batch_of([value]), 1)
    assert values_of(cluster, topic, 0, 0, 3) == values
