"""From batches to extents to columns.

`scan_batches` walks the headers of a record set, `walk_records` the records of those batches (checked completely:
whatever the bytes say, nothing outside a batch's data is read), `walk_headers` the headers of the records found,
and `gather` copies extents into one column. A kernel does not explain what it refuses: the caller asks the plain
twin, which says it in words.
"""

import numpy as np

from pylog.storage.kernels.cache import helper, kernel, types
from pylog.storage.kernels.memory import copy_bytes, load_big_endian, load_u8

_INT64 = types.int64
_INT32_MAX = 0x7FFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_TIMESTAMP_MS_MAX = _INT64_MAX // 1000  # beyond, microseconds do not fit
_RECORD_BYTES_MIN = 7  # seven one-byte fields
_HEADER_BYTES = 61

# columns of the batch table
(
    POSITION,
    SIZE_BYTES,
    CRC,
    ATTRIBUTES,
    RECORD_COUNT,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    DATA_ADDRESS,
    DATA_BYTES,
) = range(11)
BATCH_COLUMNS = 11

# the cursor of `walk_records`: where to go on, and what the last call found
NEXT_BATCH, NEXT_RECORD, NEXT_POSITION, ROWS, KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS, HEADERS = range(9)
CURSOR_FIELDS = 9

# what `walk_records` returns
FINISHED, MORE, MALFORMED, TIMESTAMP_RANGE = range(4)


@kernel(types.Tuple((_INT64[:, ::1], _INT64))(_INT64, _INT64))
def scan_batches(address: int, size_bytes: int) -> tuple[np.ndarray, int]:
    """One row for each whole batch, and the position of the first whose header cannot be (-1: none).

    A cut-off last batch is left out. Data addresses are those of uncompressed batches.
    """
    count = position = 0
    while size_bytes - position >= _HEADER_BYTES:
        length = load_big_endian(address + position + 8, 4)
        if length < _HEADER_BYTES - 12 or length + 12 > size_bytes - position:
            break
        position += length + 12
        count += 1
    table = np.empty((count, BATCH_COLUMNS), np.int64)
    position = 0
    for row in range(count):
        at = address + position
        size = load_big_endian(at + 8, 4) + 12
        attributes = load_big_endian(at + 21, 2)
        last_offset_delta = load_big_endian(at + 23, 4)
        record_count = load_big_endian(at + 57, 4)
        base_offset = load_big_endian(at, 8)
        if (
            load_u8(at + 16) != 2
            or attributes & 7 > 4
            or base_offset < 0
            or base_offset > _INT64_MAX - 1 - _INT32_MAX
            or not 0 <= record_count <= last_offset_delta + 1
            or last_offset_delta < 0
        ):
            return table[:row], position
        table[row, POSITION] = position
        table[row, SIZE_BYTES] = size
        table[row, CRC] = load_big_endian(at + 17, 4) & 0xFFFFFFFF
        table[row, ATTRIBUTES] = attributes
        table[row, BASE_OFFSET] = base_offset
        table[row, LAST_OFFSET_DELTA] = last_offset_delta
        table[row, BASE_TIMESTAMP] = load_big_endian(at + 27, 8)
        table[row, MAX_TIMESTAMP] = load_big_endian(at + 35, 8)
        table[row, RECORD_COUNT] = record_count
        table[row, DATA_ADDRESS] = at + _HEADER_BYTES
        table[row, DATA_BYTES] = size - _HEADER_BYTES
        position += size
    # the first loop also ends at a length that is too small to be one
    if size_bytes - position >= _HEADER_BYTES and load_big_endian(address + position + 8, 4) < _HEADER_BYTES - 12:
        return table, position
    return table, -1


@helper
def read_varint(at: int, end: int) -> tuple[int, int]:
    """(value, address behind it); address 0 if it does not end before `end` or within 64 bits."""
    if at >= end:
        return 0, 0
    byte = load_u8(at)
    at += 1
    rest = byte & 0x7F
    if byte >= 0x80:
        shift = 7
        while True:
            if at >= end or shift > 63:
                return 0, 0
            byte = load_u8(at)
            at += 1
            if shift == 63 and byte > 1:
                return 0, 0
            rest |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    # `>>` of a signed number would drag its sign along
    return ((rest >> 1) & _INT64_MAX) ^ -(rest & 1), at


@helper
def read_extent(at: int, end: int) -> tuple[int, int, int]:
    """(address, length, address behind it) of a field; the last is 0 if it does not fit before `end`."""
    length, at = read_varint(at, end)
    if at == 0 or length < -1 or length > end - at:
        return 0, 0, 0
    return at, length, at + max(length, 0)


@kernel(
    _INT64(
        _INT64[:, ::1], _INT64[::1], _INT64, _INT64, _INT64,
        _INT64[::1], types.int32[::1], _INT64[::1], types.int32[::1], _INT64[::1], _INT64[::1], _INT64[::1],
        types.int32[::1],
    )
)  # fmt: skip
def walk_records(
    batches: np.ndarray,
    cursor: np.ndarray,
    offset_start: int,
    offset_end: int,
    bytes_max: int,
    key_address: np.ndarray,
    key_length: np.ndarray,
    value_address: np.ndarray,
    value_length: np.ndarray,
    offsets: np.ndarray,
    timestamps_us: np.ndarray,
    headers_address: np.ndarray,
    headers_count: np.ndarray,
) -> int:
    """The rows with offset_start <= offset < offset_end, until the arrays or `bytes_max` are full.

    One call never mixes batches of different timestamp types. A record over `bytes_max` comes alone.
    """
    row_max = len(offsets)
    rows = key_bytes = key_nulls = value_bytes = value_nulls = headers = total_bytes = 0
    batch, record, position = cursor[NEXT_BATCH], cursor[NEXT_RECORD], cursor[NEXT_POSITION]
    status = FINISHED
    while batch < len(batches):
        is_append_time = batches[batch, ATTRIBUTES] & 8
        if rows > 0 and is_append_time != batches[batch - 1, ATTRIBUTES] & 8:
            status = MORE
            break
        start = batches[batch, DATA_ADDRESS]
        end = start + batches[batch, DATA_BYTES]
        count = batches[batch, RECORD_COUNT]
        base_offset = batches[batch, BASE_OFFSET]
        last_offset_delta = batches[batch, LAST_OFFSET_DELTA]
        base_timestamp = batches[batch, BASE_TIMESTAMP]
        if is_append_time:
            base_timestamp = batches[batch, MAX_TIMESTAMP]
        has_deltas = not is_append_time and base_timestamp != -1
        at = start + position
        while record < count:
            length, field = read_varint(at, end)
            if field == 0 or length < _RECORD_BYTES_MIN - 1 or length > end - field:
                status = MALFORMED
                break
            record_end = field + length
            timestamp_delta, field = read_varint(field + 1, record_end)
            if field == 0:
                status = MALFORMED
                break
            offset_delta, field = read_varint(field, record_end)
            if field == 0 or offset_delta < 0 or offset_delta > last_offset_delta:
                status = MALFORMED
                break
            key_at, key_size, field = read_extent(field, record_end)
            if field == 0:
                status = MALFORMED
                break
            value_at, value_size, field = read_extent(field, record_end)
            if field == 0:
                status = MALFORMED
                break
            header_count, headers_at = read_varint(field, record_end)
            if headers_at == 0 or header_count < 0:
                status = MALFORMED
                break
            field = headers_at
            for _ in range(header_count):  # ends early where the bytes do, whatever the count says
                _at, size, field = read_extent(field, record_end)
                if field == 0 or size < 0:
                    field = 0
                    break
                _at, _size, field = read_extent(field, record_end)
                if field == 0:
                    break
            if field != record_end:
                status = MALFORMED
                break
            offset = base_offset + offset_delta
            if offset_start <= offset < offset_end:
                if rows == row_max or (rows > 0 and total_bytes + length > bytes_max):
                    status = MORE
                    break
                timestamp = base_timestamp
                if has_deltas:
                    timestamp = base_timestamp + timestamp_delta
                    # equal signs in, another sign out: it did not fit
                    if (base_timestamp ^ timestamp) & (timestamp_delta ^ timestamp) < 0:
                        status = TIMESTAMP_RANGE
                        break
                if timestamp > _TIMESTAMP_MS_MAX or timestamp < -_TIMESTAMP_MS_MAX:
                    status = TIMESTAMP_RANGE
                    break
                offsets[rows] = offset
                timestamps_us[rows] = timestamp * 1000
                key_address[rows] = key_at
                key_length[rows] = key_size
                value_address[rows] = value_at
                value_length[rows] = value_size
                headers_address[rows] = headers_at
                headers_count[rows] = header_count
                key_nulls += key_size < 0
                key_bytes += max(key_size, 0)
                value_nulls += value_size < 0
                value_bytes += max(value_size, 0)
                headers += header_count
                total_bytes += length
                rows += 1
            at = record_end
            record += 1
        position = at - start
        if status != FINISHED:
            break
        if position != batches[batch, DATA_BYTES]:
            status = MALFORMED
            break
        batch += 1
        record = position = 0
    cursor[NEXT_BATCH] = batch
    cursor[NEXT_RECORD] = record
    cursor[NEXT_POSITION] = position
    cursor[ROWS] = rows
    cursor[KEY_BYTES] = key_bytes
    cursor[KEY_NULLS] = key_nulls
    cursor[VALUE_BYTES] = value_bytes
    cursor[VALUE_NULLS] = value_nulls
    cursor[HEADERS] = headers
    return status


@kernel(
    types.UniTuple(_INT64, 2)(
        _INT64[::1], types.int32[::1], _INT64, _INT64[::1], types.int32[::1], _INT64[::1], types.int32[::1]
    )
)
def walk_headers(
    headers_address: np.ndarray,
    headers_count: np.ndarray,
    rows: int,
    key_address: np.ndarray,
    key_length: np.ndarray,
    value_address: np.ndarray,
    value_length: np.ndarray,
) -> tuple[int, int]:
    """The headers of rows that `walk_records` has checked; (bytes of keys, bytes of values)."""
    found = key_bytes = value_bytes = 0
    for row in range(rows):
        at = headers_address[row]
        for _ in range(headers_count[row]):
            # checked before: the end is not known here, and not needed
            start, length, at = read_extent(at, _INT64_MAX)
            key_address[found] = start
            key_length[found] = length
            key_bytes += length
            start, length, at = read_extent(at, _INT64_MAX)
            value_address[found] = start
            value_length[found] = length
            value_bytes += max(length, 0)
            found += 1
    return key_bytes, value_bytes


@kernel(types.void(_INT64[::1], types.int32[::1], _INT64, types.int32[::1], _INT64))
def gather(address: np.ndarray, length: np.ndarray, rows: int, offsets: np.ndarray, target: int) -> None:
    """The bytes of all extents one behind the other, and Arrow's offsets; the caller made room for their sum."""
    position = 0
    for row in range(rows):
        offsets[row] = position
        size = length[row]
        if size > 0:
            copy_bytes(target + position, address[row], size)
            position += size
    offsets[rows] = position
