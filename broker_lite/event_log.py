"""Events of the machines <-> records of the logs they live in."""

from collections.abc import Iterator, Sequence

from pylog.broker_lite.machines.group_outcome import Event, GroupEvent
from pylog.broker_lite.machines.offsets import CommittedOffset, OffsetEvent, OffsetKey
from pylog.broker_lite.protocol import consumer_offsets
from pylog.broker_lite.protocol.consumer_offsets import (
    EXPIRING_VALUE_VERSION,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_value,
)
from pylog.storage.batch import walk
from pylog.storage.errors import CorruptBatch, LogOffline, StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.records import Record, decode_batch, encode_batch

_READ_BYTES_MAX = 1 << 20
LEADER_EPOCH = 0  # nobody but its broker reads the metadata log

KeyValue = tuple[bytes | None, bytes | None]


def batch(records: Sequence[KeyValue], now_ms: int) -> bytearray:
    return encode_batch([Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(records)])


def append(log: PartitionLog, records: Sequence[KeyValue], now_ms: int) -> None:
    log.append(batch(records, now_ms), LEADER_EPOCH)
    log.advance_high_watermark(log.log_end_offset)


def read(log: PartitionLog) -> Iterator[Record]:
    """Every record of the log, from its start to its end; LogOffline, which names the log, if it cannot be read."""
    try:
        yield from _read(log)
    except (StorageError, OSError) as error:
        raise LogOffline(f"{log.directory}: {error}") from error


def _read(log: PartitionLog) -> Iterator[Record]:
    offset = log.log_start_offset
    while (found := log.read(offset, _READ_BYTES_MAX)) is not None:
        data = found.file.read_at(found.position, found.length)
        if len(data) != found.length:
            raise CorruptBatch(f"{found.length - len(data)} bytes are missing at the end of {found.file.path}")
        for position, header in walk(data):
            if not header.is_control:
                yield from decode_batch(data, position)
            offset = header.next_offset


def record(event: Event) -> KeyValue:
    """An event of a group or of its offsets, as `__consumer_offsets` keeps it."""
    if isinstance(event, OffsetEvent):
        return offset_record(event)
    value = None if event.value is None else consumer_offsets.encode_value(event.value)
    return consumer_offsets.encode_key(GroupMetadataKey(event.group_id)), value


def event(record: Record) -> Event | None:
    """None for what neither is; newer kinds of groups are stepped over."""
    key = None if record.key is None else consumer_offsets.decode_key(record.key)
    if isinstance(key, GroupMetadataKey):
        return GroupEvent(key.group, None if record.value is None else decode_group_value(record.value))
    return offset_event(record)


def offset_record(event: OffsetEvent) -> KeyValue:
    key = OffsetCommitKey(group=event.key.group, topic=event.key.topic, partition=event.key.partition)
    value = event.value
    if value is None:
        return consumer_offsets.encode_key(key), None
    written = OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        expire_timestamp=value.expire_timestamp_ms,
        topic_id=value.topic_id,
    )
    if value.expire_timestamp_ms >= 0:
        return consumer_offsets.encode_key(key), consumer_offsets.encode_value(written, EXPIRING_VALUE_VERSION)
    return consumer_offsets.encode_key(key), consumer_offsets.encode_value(written)


def offset_event(record: Record) -> OffsetEvent | None:
    """None for what is not a committed offset."""
    if record.key is None:
        return None
    key = consumer_offsets.decode_key(record.key)
    if not isinstance(key, OffsetCommitKey):
        return None
    place = OffsetKey(key.group, key.topic, key.partition)
    if record.value is None:
        return OffsetEvent(place, None)
    value = consumer_offsets.decode_offset_value(record.value)
    committed = CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, value.topic_id
    )
    return OffsetEvent(place, committed)
