"""What is asked of batches before they are appended, and the offsets that they get. Touches no file."""

from typing import NamedTuple

from pylog.storage import batch
from pylog.storage.batch import LOG_APPEND_TIME, NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from pylog.storage.errors import InvalidBatch, InvalidTimestamp
from pylog.storage.segment import Placed
from pylog.storage.transactions import Marker, read_marker

_RECORD_BYTES_MIN = 7  # length, attributes, two deltas, key, value and header count, a byte each


class Sequenced(NamedTuple):
    """A batch with a producer id, at its place; the marker of a control batch."""

    header: BatchHeader
    marker: Marker | None


def place(
    batches: bytearray | memoryview, next_offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[list[Placed], list[Sequenced], int]:
    """Check every batch and give it its offsets, its epoch and, unless that is -1, its append time, all in place.

    Returns where the batches are, those of them that have a producer, and the latest timestamp."""
    placed: list[Placed] = []
    sequenced: list[Sequenced] = []
    position, size_bytes = 0, len(batches)
    max_timestamp_ms = NO_TIMESTAMP
    while position < size_bytes:
        header = batch.check(batches, position)
        _check_claims(header)
        if append_time_ms != NO_TIMESTAMP:
            header = batch.stamp(batches, position, header, append_time_ms)
        elif header.attributes & LOG_APPEND_TIME:
            raise InvalidTimestamp("a batch for a topic with message.timestamp.type=CreateTime says LogAppendTime")
        if header.producer_id != NO_PRODUCER_ID:
            marker = read_marker(batches, position) if header.is_control else None
            sequenced.append(Sequenced(header._replace(base_offset=next_offset), marker))
        batch.assign(batches, position, next_offset, leader_epoch)
        last_offset = next_offset + header.last_offset_delta
        placed.append(Placed(position, last_offset, header.max_timestamp))
        if header.max_timestamp > max_timestamp_ms:
            max_timestamp_ms = header.max_timestamp
        next_offset = last_offset + 1
        position += header.size_bytes
    if not placed:
        raise InvalidBatch("there is no batch to append")
    return placed, sequenced, max_timestamp_ms


def _check_claims(header: BatchHeader) -> None:
    """The offsets of a batch that is appended are those of its records, without gaps."""
    count = header.record_count
    if count != header.last_offset_delta + 1:  # and so at least 1
        raise InvalidBatch(f"a batch with {count} records has a last offset delta of {header.last_offset_delta}")
    if header.codec == 0 and count * _RECORD_BYTES_MIN > header.size_bytes - batch.HEADER_BYTES:
        raise InvalidBatch(f"a batch of {header.size_bytes} bytes cannot hold {count} records")
    if header.max_timestamp < header.base_timestamp or header.base_timestamp < NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"the timestamps of a batch go from {header.base_timestamp} to {header.max_timestamp}, which cannot be"
        )
