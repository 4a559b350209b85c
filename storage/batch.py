"""Record batch v2: its header, its checksum, its place in the log.

A batch is 61 bytes of header and then its records, which only they who need them decode
(`records` plainly, `kernels` fast). The CRC covers byte 21 to the end, so a broker assigns
offsets by rewriting bytes 0-15 and never touches the checksum.
"""

import struct
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from pylog.storage.checksum import crc32c
from pylog.storage.errors import CorruptBatch, InvalidBatch, UnsupportedBatch, UnsupportedCodec

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
PLACE = struct.Struct(">qii")  # base offset, length, leader epoch: what the CRC does not cover

HEADER_BYTES = 61
PREFIX_BYTES = 12  # base offset and length: what `length` itself does not count
CRC_START = 21
MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # then the base timestamp says when compaction may remove tombstones and markers
CODEC_MAX = 4


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return PREFIX_BYTES + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones or the marker in this batch may go; None until compaction has met them."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def latest_record_ms(self) -> int:
        """The maximum timestamp of its records. Of a batch that compaction has emptied there is none, though its header
        still has that of the records it had: by it a producer is known to have been there."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime (then every record carries `max_timestamp`)."""
        return 1 if self.attributes & LOG_APPEND_TIME else 0


unpack_header = _HEADER.unpack_from
header_of = partial(tuple.__new__, BatchHeader)  # as _make does, in half the time


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked; the caller knows that 61 bytes are there."""
    return header_of(unpack_header(buffer, position))


def read_prefix(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """(base offset, size in bytes) of the batch at `position`; needs 12 bytes only."""
    base_offset, length = _PREFIX.unpack_from(buffer, position)
    return base_offset, PREFIX_BYTES + length


def check(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the whole, intact batch at `position`; raises what is wrong with it otherwise."""
    room = len(buffer) - position
    if room < HEADER_BYTES:
        raise CorruptBatch(f"{room} bytes are left where a batch header takes {HEADER_BYTES}")
    header = read_header(buffer, position)
    if header.length < HEADER_BYTES - PREFIX_BYTES or header.size_bytes > room:
        raise CorruptBatch(f"the batch says it has {header.size_bytes} bytes, and {room} are there")
    if header.magic != MAGIC:
        raise UnsupportedBatch(f"record batch format v{header.magic}; only v{MAGIC} is supported")
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + header.size_bytes])
    if crc != header.crc:
        raise CorruptBatch(f"CRC-32C is {crc:08x}, the batch says {header.crc:08x}")
    if header.codec > CODEC_MAX:
        raise UnsupportedCodec(f"unknown compression codec {header.codec}")
    if header.last_offset_delta < 0 or header.record_count < 0 or header.record_count > header.last_offset_delta + 1:
        raise InvalidBatch(f"{header.record_count} records with a last offset delta of {header.last_offset_delta}")
    return header


def assign(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch its place in the log: bytes 0-15, which the CRC does not cover."""
    (length,) = struct.unpack_from(">i", buffer, position + 8)
    PLACE.pack_into(buffer, position, base_offset, length, leader_epoch)


def stamp(buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    """The batch with LogAppendTime: its records are as old as their place in the log. These bytes are under the CRC."""
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    pack_header(buffer, position, stamped)
    return stamped


def walk(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch in `buffer`, unchecked; a cut-off last one is left out."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.length < HEADER_BYTES - PREFIX_BYTES:
            raise CorruptBatch(f"the batch at byte {position} says its length is {header.length}")
        if header.size_bytes > end - position:
            return
        yield position, header
        position += header.size_bytes


def pack_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write a header with the CRC of the records that already stand behind it."""
    _HEADER.pack_into(buffer, position, *header)
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + header.size_bytes])
    struct.pack_into(">I", buffer, position + 17, crc)
