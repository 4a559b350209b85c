"""From columns to extents to batches.

`extents` reads Arrow's offsets, `sort_by_partition` puts rows in the order in which they are written,
`measure_headers` and `plan_batches` find the size of everything, and `write_batches` writes it all into one
buffer of exactly that size: for each batch its header, with the CRC left for the caller, and its records.
"""

import numpy as np

from pylog.storage.kernels.cache import helper, kernel, types
from pylog.storage.kernels.memory import copy_bytes, load_i64, load_u8, load_u32, store_big_endian, store_u8

_INT64 = types.int64
_INT32_MAX = 0x7FFFFFFF
_HEADER_BYTES = 61

# columns of the plan, one row for each batch
FIRST, COUNT, SIZE_BYTES, PARTITION, BASE_TIMESTAMP, MAX_TIMESTAMP = range(6)
PLAN_COLUMNS = 6


@kernel(_INT64(_INT64, _INT64, _INT64, _INT64, _INT64, _INT64, _INT64[::1], types.int32[::1]))
def extents(
    offsets_address: int,
    offset_bytes: int,
    validity_address: int,
    first_row: int,
    data_address: int,
    data_bytes: int,
    address: np.ndarray,
    length: np.ndarray,
) -> int:
    """Extents of `len(address)` rows of a binary, string or list array from `first_row` on; the row that is bad, or -1.

    Offsets have 4 or 8 bytes; without nulls the address of the validity bits is 0.
    """
    for row in range(len(address)):
        at = first_row + row
        if validity_address != 0 and (load_u8(validity_address + (at >> 3)) >> (at & 7)) & 1 == 0:
            address[row] = 0
            length[row] = -1
            continue
        if offset_bytes == 4:
            start = np.int64(load_u32(offsets_address + 4 * at))
            end = np.int64(load_u32(offsets_address + 4 * at + 4))
        else:
            start = load_i64(offsets_address + 8 * at)
            end = load_i64(offsets_address + 8 * at + 8)
        if start < 0 or end < start or end > data_bytes or end - start > _INT32_MAX:
            return row
        address[row] = data_address + start
        length[row] = end - start
    return -1


@kernel(types.void(types.int32[::1], _INT64[::1], _INT64[::1]))
def sort_by_partition(partition_ids: np.ndarray, next_place: np.ndarray, order: np.ndarray) -> None:
    """A stable counting sort; `next_place` has one zero for each partition and one more."""
    for row in range(len(partition_ids)):
        next_place[partition_ids[row] + 1] += 1
    for partition in range(1, len(next_place)):
        next_place[partition] += next_place[partition - 1]
    for row in range(len(partition_ids)):
        partition = partition_ids[row]
        order[next_place[partition]] = row
        next_place[partition] += 1


@helper
def varint_size(value: int) -> int:
    rest = (value << 1) ^ (value >> 63)
    if 0 <= rest < 0x80:
        return 1
    size = 1
    rest = (rest >> 7) & 0x1FFFFFFFFFFFFFF  # unsigned from here on
    while rest > 0:
        size += 1
        rest >>= 7
    return size


@helper
def write_varint(at: int, value: int) -> int:
    """The address behind it."""
    rest = (value << 1) ^ (value >> 63)
    if 0 <= rest < 0x80:
        store_u8(at, rest)
        return at + 1
    store_u8(at, rest | 0x80)
    rest = (rest >> 7) & 0x1FFFFFFFFFFFFFF
    at += 1
    while rest > 0x7F:
        store_u8(at, rest | 0x80)
        rest >>= 7
        at += 1
    store_u8(at, rest)
    return at + 1


@helper
def field_size(length: int) -> int:
    return varint_size(length) + max(length, 0)


@helper
def write_field(at: int, address: int, length: int) -> int:
    at = write_varint(at, length)
    if length > 0:
        copy_bytes(at, address, length)
        at += length
    return at


@kernel(_INT64(_INT64[::1], types.int32[::1], types.int32[::1], types.int32[::1], _INT64[::1]))
def measure_headers(
    first: np.ndarray, count: np.ndarray, key_length: np.ndarray, value_length: np.ndarray, size_bytes: np.ndarray
) -> int:
    """What the headers of each row take in its record; the row with a header that has no key, or -1."""
    for row in range(len(first)):
        headers = max(count[row], 0)
        size = varint_size(headers)
        for header in range(first[row], first[row] + headers):
            if key_length[header] < 0:
                return row
            size += field_size(key_length[header]) + field_size(value_length[header])
        size_bytes[row] = size
    return -1


@kernel(
    types.UniTuple(_INT64, 2)(
        _INT64[::1], types.int32[::1], _INT64[::1], types.int32[::1], types.int32[::1], _INT64[::1], _INT64,
        _INT64[::1], _INT64[:, ::1],
    )
)  # fmt: skip
def plan_batches(
    order: np.ndarray,
    partition_ids: np.ndarray,
    timestamps_ms: np.ndarray,
    key_length: np.ndarray,
    value_length: np.ndarray,
    headers_bytes: np.ndarray,
    batch_bytes_max: int,
    body_bytes: np.ndarray,
    plan: np.ndarray,
) -> tuple[int, int]:
    """(number of batches, bytes of all); `body_bytes` is what each record's length field will say.

    `headers_bytes` is empty if no row has headers. A record over `batch_bytes_max` gets a batch of its own.
    """
    batch = -1
    total = size = max_timestamp = 0
    for place in range(len(order)):
        row = order[place]
        timestamp = timestamps_ms[row]
        fields = 1 + field_size(key_length[row]) + field_size(value_length[row])
        fields += headers_bytes[row] if len(headers_bytes) else 1
        goes_on = batch >= 0 and plan[batch, PARTITION] == partition_ids[row]
        if goes_on:
            body = fields + varint_size(timestamp - plan[batch, BASE_TIMESTAMP])
            body += varint_size(place - plan[batch, FIRST])
            if size + varint_size(body) + body > batch_bytes_max:
                goes_on = False
        if not goes_on:
            batch += 1
            body = fields + 2  # both deltas are zero
            plan[batch, FIRST] = place
            plan[batch, COUNT] = 0
            plan[batch, PARTITION] = partition_ids[row]
            plan[batch, BASE_TIMESTAMP] = timestamp
            size = _HEADER_BYTES
            total += size
            max_timestamp = timestamp
        body_bytes[place] = body
        size += varint_size(body) + body
        total += varint_size(body) + body
        max_timestamp = max(max_timestamp, timestamp)
        plan[batch, COUNT] += 1
        plan[batch, SIZE_BYTES] = size
        plan[batch, MAX_TIMESTAMP] = max_timestamp
    return batch + 1, total


@kernel(
    types.void(
        _INT64[:, ::1], _INT64[::1], _INT64[::1], _INT64[::1],
        _INT64[::1], types.int32[::1], _INT64[::1], types.int32[::1],
        _INT64[::1], types.int32[::1], _INT64[::1], types.int32[::1], _INT64[::1], types.int32[::1],
        _INT64,
    )
)  # fmt: skip
def write_batches(
    plan: np.ndarray,
    order: np.ndarray,
    body_bytes: np.ndarray,
    timestamps_ms: np.ndarray,
    key_address: np.ndarray,
    key_length: np.ndarray,
    value_address: np.ndarray,
    value_length: np.ndarray,
    headers_first: np.ndarray,
    headers_count: np.ndarray,
    header_key_address: np.ndarray,
    header_key_length: np.ndarray,
    header_value_address: np.ndarray,
    header_value_length: np.ndarray,
    at: int,
) -> None:
    """Every planned batch, one behind the other, from address `at` on."""
    for batch in range(len(plan)):
        count, base_timestamp = plan[batch, COUNT], plan[batch, BASE_TIMESTAMP]
        store_big_endian(at, 0, 8)  # base offset
        store_big_endian(at + 8, plan[batch, SIZE_BYTES] - 12, 4)
        store_big_endian(at + 12, -1, 4)  # leader epoch
        store_u8(at + 16, 2)  # magic
        store_big_endian(at + 17, 0, 4)  # CRC
        store_big_endian(at + 21, 0, 2)  # attributes
        store_big_endian(at + 23, count - 1, 4)  # last offset delta
        store_big_endian(at + 27, base_timestamp, 8)
        store_big_endian(at + 35, plan[batch, MAX_TIMESTAMP], 8)
        store_big_endian(at + 43, -1, 8)  # producer id
        store_big_endian(at + 51, -1, 2)  # producer epoch
        store_big_endian(at + 53, -1, 4)  # base sequence
        store_big_endian(at + 57, count, 4)
        at += _HEADER_BYTES
        first = plan[batch, FIRST]
        for delta in range(count):
            row = order[first + delta]
            at = write_varint(at, body_bytes[first + delta])
            store_u8(at, 0)  # attributes
            at = write_varint(at + 1, timestamps_ms[row] - base_timestamp)
            at = write_varint(at, delta)
            at = write_field(at, key_address[row], key_length[row])
            at = write_field(at, value_address[row], value_length[row])
            if len(headers_count) == 0:
                store_u8(at, 0)
                at += 1
                continue
            headers = max(headers_count[row], 0)
            at = write_varint(at, headers)
            for header in range(headers_first[row], headers_first[row] + headers):
                at = write_field(at, header_key_address[header], header_key_length[header])
                at = write_field(at, header_value_address[header], header_value_length[header])
