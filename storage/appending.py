"""What is asked of batches before they are appended, and the offsets that they get. Touches no file."""

from collections.abc import Sequence

from pylog.storage import batch
from pylog.storage.batch import (
    CODEC_MAX,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PLACE,
    PREFIX_BYTES,
    BatchHeader,
    header_of,
    unpack_header,
)
from pylog.storage.checksum import crc32c
from pylog.storage.errors import InvalidBatch, InvalidTimestamp
from pylog.storage.index import INT32_MAX
from pylog.storage.segment import Placed
from pylog.storage.transactions import Marker, read_marker

_put_in_place = PLACE.pack_into
_RECORD_BYTES_MIN = 7  # length, attributes, two deltas, key, value and header count, a byte each


Sequenced = tuple[BatchHeader, Marker | None]  # a batch with a producer id, at its place; the marker of a control batch


def place(
    batches: bytearray | memoryview, next_offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[Placed, Sequence[Placed], Sequence[Sequenced]]:
    """Check every batch and give it its offsets, its epoch and, unless that is -1, its append time, all in place.

    Returns where the last one is, where those before it are (there are seldom any), and those that have a producer."""
    size_bytes = len(batches)
    if size_bytes >= HEADER_BYTES and append_time_ms == NO_TIMESTAMP:
        # One plain batch, as nearly always: what is asked here in one breath is asked in words by `_place_each`.
        header = unpack_header(batches)
        _, length, _, magic, crc, attributes, delta, first_ms, max_ms, producer_id, _, _, count = header
        if (
            length + PREFIX_BYTES == size_bytes
            and magic == MAGIC
            and 0 <= attributes <= CODEC_MAX
            and count == delta + 1 > 0
            and (attributes or count * _RECORD_BYTES_MIN <= size_bytes - HEADER_BYTES)
            and max_ms >= first_ms >= NO_TIMESTAMP
            and crc32c((batches if type(batches) is memoryview else memoryview(batches))[CRC_START:]) == crc
        ):
            _put_in_place(batches, 0, next_offset, length, leader_epoch)
            last = (0, next_offset + delta, max_ms)
            if producer_id == NO_PRODUCER_ID:
                return last, (), ()
            return last, (), ((header_of((next_offset, length, leader_epoch, *header[3:])), None),)
    return _place_each(batches, next_offset, leader_epoch, append_time_ms)


def _place_each(
    batches: bytearray | memoryview, next_offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[Placed, Sequence[Placed], Sequence[Sequenced]]:
    placed: list[Placed] = []
    sequenced: list[Sequenced] = []
    position, base_offset = 0, next_offset
    while position < len(batches):
        header = batch.check(batches, position)
        _check_claims(header)
        if append_time_ms != NO_TIMESTAMP:
            header = batch.stamp(batches, position, header, append_time_ms)
        elif header.attributes & LOG_APPEND_TIME:
            raise InvalidTimestamp("a batch for a topic with message.timestamp.type=CreateTime says LogAppendTime")
        _put_in_place(batches, position, next_offset, header.length, leader_epoch)
        if header.producer_id != NO_PRODUCER_ID:
            marker = read_marker(batches, position) if header.is_control else None
            sequenced.append((batch.read_header(batches, position), marker))
        next_offset += header.record_count
        placed.append((position, next_offset - 1, header.max_timestamp))
        position += header.size_bytes
    if not placed:
        raise InvalidBatch("there is no batch to append")
    if next_offset - base_offset > INT32_MAX + 1:  # one segment takes them all, and its indexes count from its first
        raise InvalidBatch(f"batches that are appended together say they hold {next_offset - base_offset} records")
    return placed[-1], placed[:-1], sequenced


def _check_claims(header: BatchHeader) -> None:
    """The offsets of a batch that is appended are those of its records, without gaps; compaction has not met it."""
    count = header.record_count
    if count != header.last_offset_delta + 1:  # and so at least 1
        raise InvalidBatch(f"a batch with {count} records has a last offset delta of {header.last_offset_delta}")
    if header.codec == 0 and count * _RECORD_BYTES_MIN > header.size_bytes - batch.HEADER_BYTES:
        raise InvalidBatch(f"a batch of {header.size_bytes} bytes cannot hold {count} records")
    if header.delete_horizon_ms is not None:
        raise InvalidBatch("a batch says when its tombstones may go, which only compaction can know")
    if header.is_transactional and header.producer_id == NO_PRODUCER_ID:
        raise InvalidBatch("a batch is part of a transaction, and has no producer")
    if header.max_timestamp < header.base_timestamp or header.base_timestamp < NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"the timestamps of a batch go from {header.base_timestamp} to {header.max_timestamp}, which cannot be"
        )
