"""What is asked of batches before they are appended, and the offsets that they get. Touches no file."""

import struct

from crc32c import crc32c

from pylog.storage import batch
from pylog.storage.batch import (
    CODEC_MASK,
    CODEC_MAX,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PLACE,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
)
from pylog.storage.errors import InvalidBatch, InvalidTimestamp
from pylog.storage.index import INT32_MAX
from pylog.storage.segment import Placed
from pylog.storage.transactions import Marker, read_marker

_put_in_place = PLACE.pack_into
# Of a header: length, magic, CRC, attributes, last offset delta, both timestamps, producer id, record count.
_CLAIMS = struct.Struct(">8xi4xbIhiqqq6xi").unpack_from
# Of the attributes: a codec that is known is the largest number that may be left of them. Set, the one bit is for
# compaction alone and the other needs a producer.
_OF_ANYBODY = CODEC_MASK | DELETE_HORIZON | TRANSACTIONAL
_OF_A_PRODUCER = CODEC_MASK | DELETE_HORIZON
_RECORD_BYTES_MIN = 7  # length, attributes, two deltas, key, value and header count, a byte each


Sequenced = tuple[BatchHeader, Marker | None]  # a batch with a producer id, at its place; the marker of a control batch


def place(
    batches: bytearray | memoryview, next_offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[Placed, list[Placed], list[Sequenced]]:
    """Check every batch and give it its offsets, its epoch and, unless that is -1, its append time, all in place.

    Returns where the last one is, where those before it are (there are seldom any), and those that have a producer."""
    earlier: list[Placed] = []
    sequenced: list[Sequenced] = []
    position, end, base_offset = 0, len(batches), next_offset
    view = batches if type(batches) is memoryview else memoryview(batches)
    while True:
        # What is said here in one breath is said in words, with its errors, by `check` and `_check_claims`.
        sound = False
        if end - position >= HEADER_BYTES:
            length, magic, crc, attributes, delta, first_ms, max_ms, producer_id, count = _CLAIMS(batches, position)
            behind = position + PREFIX_BYTES + length
            if (
                magic == MAGIC
                and position + HEADER_BYTES <= behind <= end
                and (0 <= attributes <= CODEC_MAX or _may_say(attributes, producer_id))
                and count == delta + 1 > 0
                and (attributes & CODEC_MASK or count * _RECORD_BYTES_MIN <= behind - position - HEADER_BYTES)
                and max_ms >= first_ms >= NO_TIMESTAMP
            ):
                sound = crc32c(view[position + CRC_START : behind]) == crc
        if not sound:
            if not end:
                raise InvalidBatch("there is no batch to append")
            _check_claims(batch.check(batches, position))
            raise AssertionError("both checks are the same")
        if append_time_ms != NO_TIMESTAMP:
            batch.stamp(batches, position, batch.read_header(batches, position), append_time_ms)
            max_ms = append_time_ms
        elif attributes & LOG_APPEND_TIME:
            raise InvalidTimestamp("a batch for a topic with message.timestamp.type=CreateTime says LogAppendTime")
        _put_in_place(batches, position, next_offset, length, leader_epoch)
        if producer_id != NO_PRODUCER_ID:
            marker = read_marker(batches, position) if attributes & CONTROL else None
            sequenced.append((batch.read_header(batches, position), marker))
        next_offset += count
        last = (position, next_offset - 1, max_ms)
        if behind == end:
            break
        earlier.append(last)
        position = behind
    if next_offset - base_offset > INT32_MAX + 1:  # one segment takes them all, and its indexes count from its first
        raise InvalidBatch(f"batches that are appended together say they hold {next_offset - base_offset} records")
    return last, earlier, sequenced


def _may_say(attributes: int, producer_id: int) -> bool:
    if producer_id == NO_PRODUCER_ID:
        return attributes & _OF_ANYBODY <= CODEC_MAX
    return attributes & _OF_A_PRODUCER <= CODEC_MAX


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
