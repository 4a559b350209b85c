"""Events of the machines <-> records of the logs they live in."""

from collections.abc import Iterator, Sequence

from pylog.broker_lite.machines.offsets import CommittedOffset, OffsetEvent, OffsetKey
from pylog.broker_lite.partition import LEADER_EPOCH
from pylog.broker_lite.protocol import consumer_offsets
from pylog.broker_lite.protocol.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from pylog.storage.batch import walk
from pylog.storage.errors import CorruptBatch, LogOffline, StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.records import Record, decode_batch, encode_batch

_READ_BYTES_MAX = 1 << 20

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


def offset_record(event: OffsetEvent) -> KeyValue:
    key = OffsetCommitKey(group=event.key.group, topic=event.key.topic, partition=event.key.partition)
    value = event.value
    if value is None:
        return consumer_offsets.encode_key(key), None
    return consumer_offsets.encode_key(key), consumer_offsets.encode_value(
        OffsetCommitValue(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp_ms,
        )
    )


def offset_event(record: Record) -> OffsetEvent | None:
    """None for what is not a committed offset (a group's members, when they come)."""
    if record.key is None:
        return None
    key = consumer_offsets.decode_key(record.key)
    if not isinstance(key, OffsetCommitKey):
        return None
    place = OffsetKey(key.group, key.topic, key.partition)
    if record.value is None:
        return OffsetEvent(place, None)
    value = consumer_offsets.decode_offset_value(record.value)
    return OffsetEvent(place, CommittedOffset(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp))
