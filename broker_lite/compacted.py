"""What is asked of a batch for a compacted topic: whole records, each with a key.

Only here does the broker look at single records: compaction works by key, and a record that it cannot read would stop
it for good. Every length is checked against what is there. The loop is written for speed, not for looks: nearly all
varints have one byte or two. Still it takes about a microsecond a record, so whoever must not wait asks `is_quick`
first, and leaves the other batches to a thread.
"""

from pylog.broker_lite.errors import RecordsRefused
from pylog.storage import batch, codecs
from pylog.storage.errors import CorruptBatch, InvalidBatch, StorageError

PLAIN_FACTOR_MAX = 16  # a batch unfolds to so many times max.message.bytes at most: that bounds the time it takes
QUICK_BYTES_MAX = 16 * 1024  # 2,331 records at most
RECORDS_NAMED_MAX = 100  # in one answer; the others are refused with them

_VARINT_BYTES_MAX = 10
_NULL = 1  # the length -1, in zigzag


def is_quick(records: memoryview) -> bool:
    """Of a compressed batch nobody knows what it unfolds to."""
    return len(records) <= QUICK_BYTES_MAX and batch.read_header(records).codec == codecs.NONE


def check(records: memoryview, message_bytes_max: int) -> None:
    """One batch, of which a whole header is there; raises what is wrong with its records.

    The log looks at the checksum of what it takes. Here that is done only if something is wrong, to tell bytes that
    were damaged on their way, which may be sent again, from those that were sent like this."""
    try:
        _check(records, min(message_bytes_max * PLAIN_FACTOR_MAX, codecs.DECOMPRESSED_BYTES_MAX))
    except (StorageError, RecordsRefused) as error:
        batch.check(records)
        if isinstance(error, CorruptBatch):
            raise InvalidBatch(str(error)) from None
        raise


def _check(records: memoryview, bytes_max: int) -> None:
    header = batch.read_header(records)
    data = bytes(codecs.decompress(header.codec, records[batch.HEADER_BYTES :], bytes_max))
    keyless = _keyless(data, header.record_count)
    if keyless:
        raise RecordsRefused(
            f"The topic is compacted, and {len(keyless)} of the batch's {header.record_count} records have no key.",
            [(index, "The topic is compacted: a record needs a key.") for index in keyless[:RECORDS_NAMED_MAX]],
        )


def _keyless(data: bytes, count: int) -> list[int]:
    """The indexes of records without a key. InvalidBatch if the data is not `count` records, offsets without gaps."""
    try:
        return _walk(data, count)
    except IndexError:
        raise InvalidBatch("the last record does not end within its batch") from None


def _walk(data: bytes, count: int) -> list[int]:
    keyless: list[int] = []
    position, size = 0, len(data)
    for index in range(count):
        length = data[position]
        if length < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            length += (high << 7) - 0x80
            position += 2
        else:
            length, position = _varint(data, position)
        end = position + (length >> 1)
        if length & 1 or end > size:
            raise InvalidBatch(f"record {index} does not fit into its batch")
        if data[position + 1] < 0x80:  # behind the attributes, which are unused: the timestamp's delta
            position += 2
        elif data[position + 2] < 0x80:
            position += 3
        else:
            _, position = _varint(data, position + 1)
        delta = data[position]
        if delta < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            delta += (high << 7) - 0x80
            position += 2
        else:
            delta, position = _varint(data, position)
        if delta != index << 1:
            raise InvalidBatch(f"record {index} says another offset delta")
        length = data[position]
        if length < 0x80:
            position += 1
        else:
            length, position = _varint(data, position)
        if length == _NULL:
            keyless.append(index)
        elif length & 1:
            raise InvalidBatch(f"the key of record {index} has a negative length")
        else:
            position += length >> 1
        length = data[position]
        if length < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            length += (high << 7) - 0x80
            position += 2
        else:
            length, position = _varint(data, position)
        if length & 1 == 0:
            position += length >> 1
        elif length != _NULL:
            raise InvalidBatch(f"the value of record {index} has a negative length")
        if data[position] == 0:  # headers
            position += 1
        else:
            position = _skip_headers(data, position, index)
        if position != end:
            raise InvalidBatch(f"record {index} ends at byte {position}, its length says {end}")
    if position != size:
        raise InvalidBatch(f"{size - position} bytes stand behind the last record")
    return keyless


def _skip_headers(data: bytes, position: int, index: int) -> int:
    count, position = _varint(data, position)
    if count & 1:
        raise InvalidBatch(f"record {index} has a negative number of headers")
    for _ in range(count >> 1):
        length, position = _varint(data, position)
        if length & 1:
            raise InvalidBatch(f"a header of record {index} has no name")
        length_of_value, position = _varint(data, position + (length >> 1))
        if length_of_value != _NULL:
            if length_of_value & 1:
                raise InvalidBatch(f"a header of record {index} has a negative length")
            position += length_of_value >> 1
    return position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """(the number, still in zigzag; the position behind it)."""
    number = data[position] & 0x7F
    start = position
    while data[position] > 0x7F:
        position += 1
        if position - start >= _VARINT_BYTES_MAX:
            raise InvalidBatch(f"the varint at byte {start} of the records does not end")
        number |= (data[position] & 0x7F) << 7 * (position - start)
    if number >> 64:
        raise InvalidBatch(f"the varint at byte {start} of the records has more than 64 bits")
    return number, position + 1
