"""What a topic asks of a batch that its header does not tell: keys, timestamps, another compression.

Only here does the broker look at what is in a batch. Compaction works by key, and a record that it cannot read would
stop it for good; `message.timestamp.before.max.ms` is about each record; `compression.type` wants other bytes, of which
only the header changes besides. Every length is checked against what is there. Looking at records takes about a
microsecond each, and nobody knows what a compressed batch unfolds to, so whoever must not wait asks `is_quick` first,
and leaves the other batches to a thread.
"""

from typing import NamedTuple

from pylog.broker_lite.config import TopicConfig
from pylog.broker_lite.errors import RecordsRefused
from pylog.broker_lite.log_rows import PRODUCER, UNCOMPRESSED
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage import batch, codecs
from pylog.storage.batch import CODEC_MASK, HEADER_BYTES, NO_TIMESTAMP, PREFIX_BYTES, BatchHeader
from pylog.storage.errors import BatchTooLarge, CorruptBatch, InvalidBatch, StorageError

PLAIN_FACTOR_MAX = 16  # a batch unfolds to so many times max.message.bytes at most: that bounds the time it takes
QUICK_BYTES_MAX = 16 * 1024  # 2,331 records at most
RECORDS_NAMED_MAX = 100  # in one answer; the others are refused with them

_VARINT_BYTES_MAX = 10
_NULL = 1  # the length -1, in zigzag


class Demands(NamedTuple):
    message_bytes_max: int
    keys: bool = False  # every record has one
    times_ms: tuple[int, int] | None = None  # no record is older or younger than this
    codec: int | None = None  # None: whatever its producer chose
    level: int | None = None  # of that codec


def demands_of(config: TopicConfig) -> Demands | None:
    """All but the timestamps, whose bounds move on; None where nothing is asked."""
    codec = None
    if config.compression_type != PRODUCER:
        name = config.compression_type
        codec = codecs.NONE if name == UNCOMPRESSED else codecs.CODEC_BY_NAME[name]
    if not config.log.compact and codec is None:
        return None
    return Demands(config.message_bytes_max, config.log.compact, None, codec, config.compression_level)


def is_quick(records: memoryview) -> bool:
    """Of a compressed batch nobody knows what it unfolds to."""
    return len(records) <= QUICK_BYTES_MAX and batch.read_header(records).codec == codecs.NONE


def meet(records: memoryview, demands: Demands) -> memoryview | bytearray:
    """The batch as the topic wants it; raises what is wrong with its records.

    One batch, of which a whole header is there. The log looks at the checksum of what it takes. Here that is done only
    where the batch is written anew, or if something is wrong: to tell bytes that were damaged on their way, which may
    be sent again, from those that were sent like this."""
    try:
        return _meet(records, demands)
    except (StorageError, RecordsRefused) as error:
        batch.check(records)
        if isinstance(error, CorruptBatch):
            raise InvalidBatch(str(error)) from None
        raise


def _meet(records: memoryview, demands: Demands) -> memoryview | bytearray:
    header = batch.read_header(records)
    bytes_max = min(demands.message_bytes_max * PLAIN_FACTOR_MAX, codecs.DECOMPRESSED_BYTES_MAX)
    data = codecs.decompress(header.codec, records[HEADER_BYTES:], bytes_max)
    if demands.keys:
        _check_keys(bytes(data), header.record_count)
    latest_ms = header.max_timestamp
    if demands.times_ms is not None:
        latest_ms = _check_times(bytes(data), header, *demands.times_ms)
    if demands.codec is not None and demands.codec != header.codec:
        return _written_anew(records, header._replace(max_timestamp=latest_ms), data, demands)
    if latest_ms != header.max_timestamp:  # it lied
        batch.check(records)
        batch.pack_header(records, 0, header._replace(max_timestamp=latest_ms))
    return records


def _written_anew(records: memoryview, header: BatchHeader, data: codecs.Buffer, demands: Demands) -> bytearray:
    """Its records in the codec of the topic. Producer, sequence, timestamps and offsets stay as they are."""
    assert demands.codec is not None
    batch.check(records)
    out = bytearray(HEADER_BYTES)
    out += codecs.compress(demands.codec, data, demands.level)
    if len(out) > demands.message_bytes_max:
        raise BatchTooLarge(
            f"The batch has {len(out)} bytes in the topic's compression; max.message.bytes is "
            f"{demands.message_bytes_max}."
        )
    attributes = header.attributes & ~CODEC_MASK | demands.codec
    batch.pack_header(out, 0, header._replace(attributes=attributes, length=len(out) - PREFIX_BYTES))
    return out


def _check_keys(data: bytes, count: int) -> None:
    keyless = _keyless(data, count)
    if keyless:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"The topic is compacted, and {len(keyless)} of the batch's {count} records have no key.",
            [(index, "The topic is compacted: a record needs a key.") for index in keyless[:RECORDS_NAMED_MAX]],
        )


def _check_times(data: bytes, header: BatchHeader, oldest_ms: int, youngest_ms: int) -> int:
    """The latest timestamp of the records, which may not be what the header says."""
    try:
        times_ms = _times_of(data, header)
    except IndexError:
        raise InvalidBatch("the last record does not end within its batch") from None
    wrong = [
        (index, time_ms)
        for index, time_ms in enumerate(times_ms)
        if time_ms != NO_TIMESTAMP and not oldest_ms <= time_ms <= youngest_ms
    ]
    if wrong:
        raise RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"{len(wrong)} of the batch's {header.record_count} records have timestamps that the topic does not take.",
            [
                (index, f"The timestamp {time_ms} is not between {oldest_ms} and {youngest_ms}.")
                for index, time_ms in wrong[:RECORDS_NAMED_MAX]
            ],
        )
    return max(times_ms, default=NO_TIMESTAMP)


def _times_of(data: bytes, header: BatchHeader) -> list[int]:
    """From record to record by their lengths: nothing but timestamps is looked at."""
    times_ms: list[int] = []
    position, size = 0, len(data)
    for index in range(header.record_count):
        length, position = _varint(data, position)
        end = position + (length >> 1)
        if length & 1 or end > size:
            raise InvalidBatch(f"record {index} does not fit into its batch")
        delta, _ = _varint(data, position + 1)  # behind the attributes, which are unused
        times_ms.append(header.base_timestamp + (delta >> 1 ^ -(delta & 1)))
        position = end
    if position != size:
        raise InvalidBatch(f"{size - position} bytes stand behind the last record")
    return times_ms


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
