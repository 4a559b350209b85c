"""How much a micro-batch takes, and when: by number, by bytes, by a least number and a delay."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark")

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from pylog.connector.client.cluster import TopicPartition
from pylog.connector.client.sizes import Sample, sample_sizes
from pylog.connector.spark.admission import TriggerDelay, byte_limited
from pylog.connector.spark.offsets import Offsets
from pylog.connector.spark.stream_source import StreamReader
from tests.support.stream_readers import ALL, Json, NewReader, looked, plain

NewTopic = Callable[..., str]
Produce = Callable[..., None]
A, B = ("a", 0), ("b", 0)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        pytest.param({}, ReadAllAvailable(), id="none"),
        pytest.param({"maxOffsetsPerTrigger": "8"}, ReadMaxRows(8), id="offsets"),
        pytest.param({"maxBytesPerTrigger": "9"}, ReadMaxBytes(9), id="bytes"),
        pytest.param({"minOffsetsPerTrigger": "3"}, ReadMinRows(3), id="least"),
        pytest.param({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "8"}, ReadMaxRows(8), id="least and most"),
    ],
)
def test_a_limit_is_told_so_that_once_can_lift_it(
    new_reader: NewReader, options: dict[str, str], limit: ReadLimit
) -> None:
    assert new_reader("t", **options).getDefaultReadLimit() == limit


# minOffsetsPerTrigger and maxTriggerDelay


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_trigger_waits_for_enough_but_not_for_longer_than_the_delay() -> None:
    clock = Clock()
    delay = TriggerDelay(10, 60_000, clock)
    assert delay.fires(1), "the first one does not wait"
    clock.now = 20
    assert not delay.fires(9)
    assert delay.left_ms == 40_000
    assert delay.fires(10), "enough is there"
    clock.now = 79.9
    assert not delay.fires(9)
    clock.now = 80
    assert delay.fires(9), "the delay is over"
    assert not delay.fires(9)


@pytest.mark.connector
def test_a_batch_of_too_few_is_put_off_until_there_are_enough(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic(partitions=2)
    reader = new_reader(topic, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="12")
    limit = reader.getDefaultReadLimit()
    produce(topic, 0, 1)
    done = reader.latestOffset(reader.initialOffset(), limit)
    assert plain(done) == {topic: {"0": 1, "1": 0}}, "the first batch does not wait"
    produce(topic, 0, 4)
    produce(topic, 1, 5)
    for _ in range(3):
        assert reader.latestOffset(done, limit) == done
    assert looked(reader, done, ALL) == {topic: {"0": 5, "1": 5}}, "Trigger.Once does not wait"
    produce(topic, 1, 1)
    assert looked(reader, done, limit) == {topic: {"0": 5, "1": 6}}


@pytest.mark.connector
def test_available_now_does_not_leave_behind_what_is_too_little(
    new_topic: NewTopic, produce: Produce, new_reader: NewReader
) -> None:
    topic = new_topic()
    produce(topic, 0, 25)
    reader = new_reader(topic, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="12")
    reader.prepareForTriggerAvailableNow()
    produce(topic, 0, 25)
    assert [end[topic]["0"] for end in _ends(reader)] == [12, 24, 25]


def _ends(reader: StreamReader) -> Iterator[Json]:
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    while plain(end := reader.latestOffset(start, limit)) != plain(start):
        yield end
        start = end


# maxBytesPerTrigger


class Log:
    """Partitions of batches with `per_batch` records each; the bytes of a batch by its number."""

    def __init__(self, size_of: Callable[[int], int], per_batch: int = 10, sample_bytes: int = 1000) -> None:
        self._size_of, self._per_batch, self._sample_bytes = size_of, per_batch, sample_bytes
        self.rounds = 0

    def sample(self, offsets: Offsets) -> dict[TopicPartition, Sample]:
        self.rounds += 1
        return {place: self._sample(offset) for place, offset in offsets.items()}

    def _sample(self, offset: int) -> Sample:
        number = offset // self._per_batch
        batches = [(number * self._per_batch, self._size_of(number))]
        while sum(size for _, size in batches) < self._sample_bytes:
            number += 1
            batches.append((number * self._per_batch, self._size_of(number)))
        return Sample(offset, (number + 1) * self._per_batch, tuple(batches))

    def bytes_of(self, begin: int, end: int) -> int:
        first, last = begin // self._per_batch, (end - 1) // self._per_batch
        return sum(map(self._size_of, range(first, last + 1))) if end > begin else 0


@pytest.mark.parametrize(
    ("end", "bytes_max", "expected"),
    [
        pytest.param({A: 50, B: 100}, 1500, {A: 50, B: 100}, id="all of it fits"),
        pytest.param({A: 1000, B: 3000}, 4000, {A: 100, B: 300}, id="each gives the same part"),
        pytest.param({A: 100, B: 0}, 1, {A: 1, B: 0}, id="one offset at least goes on"),
        pytest.param({A: 0, B: 0}, 1, {A: 0, B: 0}, id="nothing waits"),
    ],
)
def test_bytes_are_shared_by_what_waits(end: Offsets, bytes_max: int, expected: Offsets) -> None:
    assert byte_limited({A: 0, B: 0}, end, bytes_max, Log(lambda number: 100).sample) == expected


@settings(deadline=None)
@given(
    sizes=st.sampled_from([(100, 100), (100, 4000), (4000, 100), (61, 61)]),
    offsets_log2=st.integers(0, 30),
    bytes_max=st.integers(1, 10_000_000),
)
def test_a_batch_is_near_its_bytes_though_records_grow_or_shrink_forty_fold(
    sizes: tuple[int, int], offsets_log2: int, bytes_max: int
) -> None:
    end = 1 << offsets_log2
    first, last = sizes
    log = Log(lambda number: first + (last - first) * number * 10 // end)
    chosen = byte_limited({A: 0}, {A: end}, bytes_max, log.sample)[A]
    assert 1 <= chosen <= end
    assert log.rounds <= 8
    batch_max = max(sizes)
    if chosen < 100_000:  # counting more takes long
        most, least = (1.05, 0.9) if first == last else (1.6, 0.2)
        assert chosen == 1 or log.bytes_of(0, chosen) <= most * bytes_max + batch_max
        assert chosen == end or log.bytes_of(0, chosen) >= least * bytes_max - batch_max


def test_what_one_sample_covers_is_asked_for_once_and_counted_exactly() -> None:
    log = Log(lambda number: 100, sample_bytes=2000)
    assert byte_limited({A: 95}, {A: 150}, 600, log.sample) == {A: 150}, "six batches of a hundred"
    assert log.rounds == 1
    assert byte_limited({A: 95}, {A: 151}, 600, log.sample)[A] < 151


def test_a_sample_that_begins_within_a_batch_does_not_make_it_larger() -> None:
    assert Sample(offset=999, next_offset=1000, batches=((0, 50_000),)).bytes_per_offset == 50
    assert Sample(offset=0, next_offset=1000, batches=((900, 50_000),)).bytes_per_offset == 50, "compacted before it"


@pytest.mark.connector
def test_samples_say_what_batches_take_in_the_log(new_topic: NewTopic, bootstrap_servers: str, cluster: Any) -> None:
    """A batch that is larger than a sample is counted too, in every partition."""
    from confluent_kafka import Producer

    topic = new_topic(partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "message.max.bytes": 1_000_000})
    for size, partition in ((10, 0), (300_000, 1), (300_000, 2)):
        for _ in range(3):
            producer.produce(topic, b"v" * size, partition=partition)
            assert producer.flush(30) == 0
    found = sample_sizes(cluster, {(topic, partition): 0 for partition in range(3)} | {(topic, 0): 1})
    assert [found[topic, 0].offset, found[topic, 0].next_offset] == [1, 3]
    assert 2 * 61 < found[topic, 0].size_bytes < 2 * 100
    for partition in (1, 2):
        per_batch = [size for _, size in found[topic, partition].batches]
        assert all(300_000 < size < 300_200 for size in per_batch)
        assert per_batch
    assert sample_sizes(cluster, {(topic, 0): 3, (topic, 1): 99}) == {}, "nothing there"


@pytest.mark.connector
def test_a_stream_takes_so_many_bytes_at_a_time(
    new_topic: NewTopic, bootstrap_servers: str, new_reader: NewReader
) -> None:
    from confluent_kafka import Producer

    topic = new_topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(200):
        producer.produce(topic, b"v" * 10_000, partition=number % 2)
    assert producer.flush(30) == 0
    reader = new_reader(topic, maxBytesPerTrigger="500000")
    ends = [{"0": 0, "1": 0}, *(end[topic] for end in _ends(reader))]
    counts = [sum(after.values()) - sum(before.values()) for before, after in pairwise(ends)]
    assert sum(counts) == 200
    assert all(45 <= count <= 50 for count in counts[:-1]), counts
    limit = reader.getDefaultReadLimit()
    assert looked(reader, new_reader(topic).initialOffset(), ALL) == {topic: {"0": 100, "1": 100}}, "Trigger.Once"
    assert isinstance(limit, ReadMaxBytes)
    large = new_reader(topic, maxBytesPerTrigger="1")
    assert looked(large, large.initialOffset(), ReadMaxBytes(1)) == {topic: {"0": 1, "1": 1}}, "one goes on"
