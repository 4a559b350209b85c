"""The records of one partition, from one offset to another, as the broker keeps them: whole batches, undecoded.

The next fetch is on its way before the last answer is given out, so that the broker and the network work
while the caller decodes. All answers go into the same memory, which is as large as the largest of them: one
is valid until the next is asked for. When a connection breaks or the leader moves, reading goes on at the
offset that was reached.
"""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from pylog.broker_lite.protocol import fetch
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.styles import TopicKey
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.connector.client.brokers import UNKNOWN_TOPIC_GRACE_MS
from pylog.connector.client.cluster import EARLIEST, LATEST, Cluster
from pylog.connector.client.connection import Answer, Connection
from pylog.connector.client.errors import (
    CorruptRecords,
    KafkaError,
    NotKafka,
    OffsetOutOfRange,
    RangeNotReached,
    Retriable,
    TopicRemade,
    kafka_error,
)
from pylog.connector.client.retry import Retry
from pylog.storage.batch import HEADER_BYTES, MAGIC, read_header, read_prefix

_MAGIC_AT = 16
_NO_ID = UUID(int=0)  # of a broker that has none (Kafka before 2.8)
_ANOTHER_ID = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


class FetchedSet(NamedTuple):
    """Whole batches in offset order, valid until the next set is asked for. The first may begin before `fetch_offset`
    and the last may end behind the range: a batch is the smallest thing a broker sends, and the caller leaves out what
    it did not ask for."""

    records: memoryview
    fetch_offset: int
    next_offset: int
    high_watermark: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]]  # (producer id, first offset); none unless read_committed


def fetch_range(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    wait_ms_max: int | None = None,
    topic_id: UUID | None = None,
) -> Iterator[FetchedSet]:
    """Every record of [start, end). Fewer offsets than that may exist (compaction, transactions).

    With `topic_id` of that topic only: TopicRemade when another one has its name. OffsetOutOfRange when the log does
    not hold `start`; RangeNotReached when it ends before `end` and nothing more arrives for `wait_ms_max`
    (`default.api.timeout.ms` if not given). A broker that cannot be reached is waited for as long as that."""
    config = cluster.config
    if wait_ms_max is None:
        wait_ms_max = config.default_api_timeout_ms
    if topic_id == _NO_ID:
        topic_id = None
    offset = start
    high_watermark = -1
    room = bytearray()
    retry = Retry(config, f"fetching {topic}-{partition}", config.default_api_timeout_ms)
    while offset < end:
        try:
            with cluster.broker(cluster.leader(topic, partition)) as connection:
                version, key = _named(connection, cluster, topic, topic_id)
                _ask(connection, version, cluster, key, partition, offset)
                waiting_since = time.monotonic()
                while offset < end:
                    answer = connection.receive(room)
                    room = _larger(room, answer)
                    found = _decode(connection, answer, cluster, topic, key, partition, offset)
                    high_watermark = found.high_watermark
                    records, next_offset = _whole_batches(found, topic, offset, end)
                    if next_offset < end:
                        _ask(connection, version, cluster, key, partition, next_offset)
                    fetch_offset, offset = offset, next_offset
                    if records:
                        yield FetchedSet(
                            records,
                            fetch_offset,
                            offset,
                            high_watermark,
                            found.log_start_offset,
                            found.aborted_transactions or (),
                        )
                    if offset > fetch_offset:
                        retry.progressed()  # only now: the caller's time is not the broker's
                        waiting_since = time.monotonic()
                    elif (waited_ms := int((time.monotonic() - waiting_since) * 1000)) >= wait_ms_max:
                        raise RangeNotReached(topic, partition, offset, end, high_watermark, waited_ms)
        except Retriable as error:
            cluster.expire(topic)
            if topic_id is not None and retry.waited_ms >= UNKNOWN_TOPIC_GRACE_MS:
                _check_id(cluster, topic, topic_id, error)
            retry.pause(error)


def _larger(room: bytearray, answer: Answer) -> bytearray:
    """The memory that this answer needed, if it was too large for `room`."""
    memory = answer.body.obj
    return memory if isinstance(memory, bytearray) and len(memory) > len(room) else room


def _named(connection: Connection, cluster: Cluster, topic: str, topic_id: UUID | None) -> tuple[int, TopicKey]:
    """(version of Fetch, what the topic is called in it). By its id where that can be, so that the leader refuses what
    is meant for another topic of the name; else what metadata says must do."""
    version = connection.version(fetch.SPEC, by_id=topic_id is not None)
    if topic_id is None:
        return version, topic
    if version >= fetch.IDS_SINCE:
        return version, topic_id.bytes
    if cluster.topic_id(topic) not in (topic_id, _NO_ID):
        raise kafka_error(ErrorCode.INCONSISTENT_TOPIC_ID, f"fetching {topic} by the id {topic_id}")
    return version, topic


def _check_id(cluster: Cluster, topic: str, wanted: UUID, error: Retriable) -> None:
    """TopicRemade if that is why a fetch fails. Not at once: a topic that was just made is not known to every broker,
    and one that is gone is still known to some."""
    if isinstance(error, KafkaError) and error.code in _ANOTHER_ID:
        found = cluster.topic_id(topic)
        if found not in (wanted, _NO_ID):
            raise TopicRemade(topic, wanted, found)


def _ask(connection: Connection, version: int, cluster: Cluster, topic: TopicKey, partition: int, offset: int) -> None:
    config = cluster.config
    bytes_max = min(config.fetch_max_bytes, config.max_partition_fetch_bytes)
    request = fetch.FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=bytes_max,
        isolation_level=cluster.isolation_level,
        session_id=fetch.NO_SESSION_ID,
        session_epoch=fetch.SESSIONLESS_EPOCH,
        partitions=[fetch.FetchPartition(topic, partition, offset, bytes_max)],
    )
    connection.send_encoded(fetch.SPEC, version, [fetch.encode_request(request, version)])


def _decode(
    connection: Connection, answer: Answer, cluster: Cluster, topic: str, key: TopicKey, partition: int, offset: int
) -> fetch.FetchedPartition:
    try:
        response = fetch.decode_response(answer.body, answer.version)
    except MalformedFrame as error:
        connection.close()
        raise NotKafka(str(connection.address), f"its answer to Fetch is malformed: {error}") from None
    context = f"fetching {topic}-{partition} at offset {offset}"
    if response.error_code:
        raise kafka_error(response.error_code, context)
    for found in response.partitions:
        if (found.topic, found.partition) != (key, partition):
            continue
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _out_of_range(cluster, topic, partition, offset)
        if found.error_code == ErrorCode.CORRUPT_MESSAGE:  # on the broker's disk: asking again does not heal it
            raise CorruptRecords(topic, partition, offset, "the broker answered CORRUPT_MESSAGE")
        if found.error_code:
            raise kafka_error(found.error_code, context)
        return found
    connection.close()
    raise NotKafka(str(connection.address), f"its answer to Fetch leaves out {topic}-{partition}")


def _out_of_range(cluster: Cluster, topic: str, partition: int, offset: int) -> OffsetOutOfRange:
    wanted = topic, partition
    log_start_offset = cluster.list_offsets({wanted: EARLIEST})[wanted]
    log_end_offset = cluster.list_offsets({wanted: LATEST})[wanted]
    return OffsetOutOfRange(topic, partition, offset, log_start_offset, log_end_offset)


def _whole_batches(found: fetch.FetchedPartition, topic: str, offset: int, end: int) -> tuple[memoryview, int]:
    """The batches that arrived whole and begin before `end`, and the offset to fetch next; `end` when none is left.

    Hops from length to length, and opens only the last header: this runs before the next fetch is sent."""
    records = memoryview(found.records or b"")
    position, last, size = 0, -1, len(records)
    while size - position >= HEADER_BYTES:
        base_offset, batch_bytes = read_prefix(records, position)
        if base_offset >= end:
            return records[:position], end
        if batch_bytes > size - position:
            break  # cut off: it comes whole with the next fetch
        if batch_bytes < HEADER_BYTES:
            raise CorruptRecords(topic, found.partition, base_offset, f"a batch of {batch_bytes} bytes")
        if records[position + _MAGIC_AT] != MAGIC:
            cause = f"record batch format v{records[position + _MAGIC_AT]}; only v{MAGIC} is supported"
            raise CorruptRecords(topic, found.partition, base_offset, cause)
        last = position
        position += batch_bytes
    if last < 0:
        if size:
            raise CorruptRecords(topic, found.partition, offset, f"{size} bytes hold no whole batch")
        return records, offset
    next_offset = read_header(records, last).next_offset
    if next_offset <= offset:
        cause = f"the broker sent batches up to offset {next_offset} only"
        raise CorruptRecords(topic, found.partition, offset, cause)
    return records[:position], next_offset
