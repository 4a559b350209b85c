"""How many bytes records take in the log: samples, for no request tells without sending them.

A sample is what a small fetch brings: batches of which at least the headers arrived. A broker sends a batch that is
larger than the fetch for the first partition of a request only; those that got nothing are asked for again.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pylog.broker_lite.protocol import fetch
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import NotKafka, kafka_error
from pylog.storage.batch import HEADER_BYTES, read_header

PARTITION_BYTES = 64 << 10  # of a sample
REQUEST_BYTES_MAX = 4 << 20  # of the samples of one answer


class Sample(NamedTuple):
    """The batches of [offset, next_offset) as (base offset, bytes): whole ones, the first may begin before `offset`."""

    offset: int
    next_offset: int
    batches: tuple[tuple[int, int], ...]

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.batches)

    @property
    def bytes_per_offset(self) -> float:
        """Of whole batches: a sample that begins within one does not make it any larger."""
        if not self.batches:
            return 0.0
        return self.size_bytes / (self.next_offset - min(self.offset, self.batches[0][0]))

    def bytes_before(self, end: int) -> int:
        return sum(size for base_offset, size in self.batches if base_offset < end)


def sample_sizes(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Sample]:
    """A sample at each of these offsets; those that a log does not hold are left out."""
    found: dict[TopicPartition, Sample] = {}
    left = dict(offsets)

    def attempt() -> dict[TopicPartition, Sample]:
        while left:
            by_leader: dict[int, list[TopicPartition]] = {}
            for topic, partition in left:
                by_leader.setdefault(cluster.leader(topic, partition), []).append((topic, partition))
            for leader, places in by_leader.items():
                with cluster.broker(leader) as connection:
                    _sample(connection, places, left, found)
        return found

    return cluster.retrying("sampling the sizes of records", attempt, {topic for topic, _ in offsets})


def _sample(
    connection: Connection,
    places: list[TopicPartition],
    left: dict[TopicPartition, int],
    found: dict[TopicPartition, Sample],
) -> None:
    """What is answered goes from `left` to `found`: the first of the places at least."""
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=REQUEST_BYTES_MAX,
        isolation_level=fetch.READ_UNCOMMITTED,
        session_id=fetch.NO_SESSION_ID,
        session_epoch=fetch.SESSIONLESS_EPOCH,
        partitions=[
            fetch.FetchPartition(topic, partition, left[topic, partition], PARTITION_BYTES)
            for topic, partition in places
        ],
    )
    version = connection.version(fetch.SPEC)
    connection.send_encoded(fetch.SPEC, version, [fetch.encode_request(request, version)])
    answer = connection.receive()
    try:
        response = fetch.decode_response(answer.body, answer.version)
    except MalformedFrame as error:
        connection.close()
        raise NotKafka(str(connection.address), f"its answer to Fetch is malformed: {error}") from None
    if response.error_code:
        raise kafka_error(response.error_code, "sampling the sizes of records")
    for partition in response.partitions:
        place = str(partition.topic), partition.partition
        if place not in left:
            continue
        offset = left[place]
        if partition.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise kafka_error(partition.error_code, f"sampling the sizes of {place[0]}-{place[1]}")
        sample = _sizes(memoryview(partition.records or b""), offset)
        if sample.batches:
            found[place] = sample
        elif place != places[0] and not partition.error_code and partition.high_watermark > offset:
            continue  # there was no room left for it
        del left[place]
    left.pop(places[0], None)  # were it left out of the answer, it would be asked for without end


def _sizes(records: memoryview, offset: int) -> Sample:
    """Also of a batch that is cut off behind its header, which says how long it is."""
    batches: list[tuple[int, int]] = []
    position, next_offset = 0, offset
    while len(records) - position >= HEADER_BYTES:
        header = read_header(records, position)
        if header.size_bytes < HEADER_BYTES:
            break  # damaged: whoever reads it will say so
        batches.append((header.base_offset, header.size_bytes))
        next_offset = max(next_offset, header.next_offset)
        position += header.size_bytes
    return Sample(offset, next_offset, tuple(batches))
