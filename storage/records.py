"""The records of a batch, one by one: plain, slow and obviously right.

The oracle for `kernels`, and what the broker uses for its own few records (offsets, metadata).
Anything that handles users' records in bulk uses the kernels.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pylog.storage import codecs
from pylog.storage.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    BatchHeader,
    Buffer,
    check,
    pack_header,
)
from pylog.storage.errors import InvalidBatch


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def write_varint(out: bytearray, value: int) -> None:
    """Zigzag, then seven bits a byte, low ones first; the same for 32 and 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(0x80 | rest & 0x7F)
        rest >>= 7
    out.append(rest)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(value, position behind it)."""
    rest = shift = 0
    while True:
        if position >= len(buffer) or shift > 63:
            raise InvalidBatch(f"a varint does not end before byte {position} of the records")
        byte = buffer[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            if rest >> 64:
                raise InvalidBatch(f"the varint before byte {position} of the records has more than 64 bits")
            return (rest >> 1) ^ -(rest & 1), position
        shift += 7


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(data))
        out += data


def _read_bytes(buffer: Buffer, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(buffer, position)
    if length == -1:
        return None, position
    if length < 0 or length > len(buffer) - position:
        raise InvalidBatch(f"a field of {length} bytes does not fit into its record")
    return bytes(buffer[position : position + length]), position + length


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = codecs.NONE,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    level: int | None = None,
) -> bytearray:
    """One batch of `records`, whose offsets and timestamps are absolute; at least one record."""
    base_offset, base_timestamp = records[0].offset, records[0].timestamp_ms
    plain = bytearray()
    for record in records:
        body = bytearray(1)  # the record's attributes, unused
        write_varint(body, record.timestamp_ms - base_timestamp)
        write_varint(body, record.offset - base_offset)
        _write_bytes(body, record.key)
        _write_bytes(body, record.value)
        write_varint(body, len(record.headers))
        for key, value in record.headers:
            _write_bytes(body, key.encode())
            _write_bytes(body, value)
        write_varint(plain, len(body))
        plain += body
    data = codecs.compress(codec, plain, level)
    batch = bytearray(HEADER_BYTES) + data
    header = BatchHeader(
        base_offset=base_offset,
        length=len(batch) - PREFIX_BYTES,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    pack_header(batch, 0, header)
    return batch


def decode_batch(buffer: Buffer, position: int = 0) -> list[Record]:
    """The records of the batch at `position`, checked from the CRC to the last varint."""
    return list(iterate_batch(buffer, position))


def iterate_batch(
    buffer: Buffer, position: int = 0, plain_bytes_max: int = codecs.DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """As `decode_batch`, one after the other: an error of a later one comes after those before it. BatchTooLarge if it
    unfolds to more than `plain_bytes_max`."""
    header = check(buffer, position)
    body = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    yield from _records(header, codecs.decompress(header.codec, body, plain_bytes_max))


def _records(header: BatchHeader, data: Buffer) -> Iterator[Record]:
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        if length < 1 or end > len(data):
            raise InvalidBatch(f"a record of {length} bytes does not fit into its batch")
        position += 1
        timestamp_delta, position = read_varint(data, position)
        offset_delta, position = read_varint(data, position)
        if not 0 <= offset_delta <= header.last_offset_delta:
            raise InvalidBatch(f"offset delta {offset_delta} is not within the last one, {header.last_offset_delta}")
        key, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        header_count, position = read_varint(data, position)
        if not 0 <= header_count <= len(data) - position:
            raise InvalidBatch(f"a record says it has {header_count} headers")
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(header_count):
            name, position = _read_bytes(data, position)
            if name is None:
                raise InvalidBatch("a header has no key")
            header_value, position = _read_bytes(data, position)
            headers.append((name.decode("utf-8", "replace"), header_value))
        if position != end:
            raise InvalidBatch(f"a record ends at byte {position}, its length says {end}")
        timestamp = header.base_timestamp + timestamp_delta
        if header.attributes & LOG_APPEND_TIME:
            timestamp = header.max_timestamp
        elif header.base_timestamp == NO_TIMESTAMP:
            timestamp = NO_TIMESTAMP
        yield Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers))
    if position != len(data):
        raise InvalidBatch(f"{len(data) - position} bytes stand behind the last record")
