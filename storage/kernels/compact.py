"""The two passes of compaction over the records of many batches: `map_keys` notes the latest offset of every key,
`filter_batches` writes what remains of the batches.

Both work on a batch table of `decode.scan_batches` and check every record completely: whatever the bytes say, nothing
outside a batch's data is read. As there, a kernel does not explain what it refuses.
"""

import numpy as np

from pylog.storage.kernels.cache import helper, kernel, types
from pylog.storage.kernels.crc import SMALL_BYTES_MAX, crc32c
from pylog.storage.kernels.decode import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CRC,
    DATA_ADDRESS,
    DATA_BYTES,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    POSITION,
    RECORD_COUNT,
    SIZE_BYTES,
    read_extent,
    read_varint,
)
from pylog.storage.kernels.encode import varint_size, write_varint
from pylog.storage.kernels.memory import copy_bytes, load_u8, store_big_endian, store_u8
from pylog.storage.kernels.offset_map import SECRET, TABLE, fetch_slot, find_slot, siphash

_INT64 = types.int64
_HEADER_BYTES = 61
_CRC_START = 21
RECORD_BYTES_MIN = 7  # seven one-byte fields
GROWTH_BYTES_MAX = 10  # of a record whose timestamp delta is rewritten: nine for the delta, one for its own length
_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40

# what a kernel returns first
FINISHED, MORE, MALFORMED = range(3)

# records that are read together
_BLOCK = 64
RECORD, RECORD_END, TIMESTAMP_DELTA, REST, OFFSET_DELTA, KEY_SIZE, VALUE_SIZE = range(7)
_BLOCK_COLUMNS = 7

# what `filter_batches` is told about a batch, in bits
VERBATIM = 1  # as it is, unread
DISCARD = 2  # none of its records stays
KEEP_RECORDS = 4  # all of them stay, whatever their keys: a marker
SET_HORIZON = 8  # if any stays, and no horizon was set before
RETAIN_EMPTY = 16  # if none stays, its header does

# what it did, a row for each batch; the maximum is that of the records, -1 where there are none
ACTION, OUT_POSITION, OUT_BYTES, KEPT, TOMBSTONES, OUT_MAX_TIMESTAMP = range(6)
RESULT_COLUMNS = 6
DROPPED, COPIED, EMPTIED, REWRITTEN = range(4)


@helper
def _read_record(at: int, end: int, last_offset_delta: int) -> tuple[int, int, int, int, int, int, int]:
    """(address behind the record, timestamp delta, address behind that, offset delta, key's address, its length,
    value's length) of the record at `at`; the first is 0 if it is malformed."""
    length, field = read_varint(at, end)
    if field == 0 or length < RECORD_BYTES_MIN - 1 or length > end - field:
        return 0, 0, 0, 0, 0, 0, 0
    record_end = field + length
    timestamp_delta, behind_timestamp = read_varint(field + 1, record_end)
    if behind_timestamp == 0:
        return 0, 0, 0, 0, 0, 0, 0
    offset_delta, field = read_varint(behind_timestamp, record_end)
    if field == 0 or offset_delta < 0 or offset_delta > last_offset_delta:
        return 0, 0, 0, 0, 0, 0, 0
    key_at, key_size, field = read_extent(field, record_end)
    if field == 0:
        return 0, 0, 0, 0, 0, 0, 0
    _at, value_size, field = read_extent(field, record_end)
    if field == 0:
        return 0, 0, 0, 0, 0, 0, 0
    header_count, field = read_varint(field, record_end)
    if field == 0 or header_count < 0:
        return 0, 0, 0, 0, 0, 0, 0
    for _ in range(header_count):  # ends early where the bytes do, whatever the count says
        _at, size, field = read_extent(field, record_end)
        if field == 0 or size < 0:
            return 0, 0, 0, 0, 0, 0, 0
        _at, size, field = read_extent(field, record_end)
        if field == 0:
            return 0, 0, 0, 0, 0, 0, 0
    if field != record_end:
        return 0, 0, 0, 0, 0, 0, 0
    return record_end, timestamp_delta, behind_timestamp, offset_delta, key_at, key_size, value_size


@kernel(_INT64(_INT64[:, ::1], _INT64))
def small_batch_with_wrong_crc(batches: np.ndarray, source: int) -> int:
    """The first row, or -1; larger batches are the caller's to check."""
    for batch in range(len(batches)):
        size = batches[batch, SIZE_BYTES]
        if size <= SMALL_BYTES_MAX:
            at = source + batches[batch, POSITION]
            if crc32c(at + _CRC_START, size - _CRC_START) != batches[batch, CRC]:
                return batch
    return -1


@helper
def _read_block(
    at: int,
    end: int,
    count: int,
    last_offset_delta: int,
    table: np.ndarray,
    secret: np.ndarray,
    hashes: np.ndarray,
    block: np.ndarray,
) -> int:
    """`count` records into rows of `block` and `hashes`, and the slots of their keys on their way into the cache.
    The address behind the last one; 0 if one is malformed."""
    for row in range(count):
        record = at
        at, timestamp_delta, rest, offset_delta, key_at, key_size, value_size = _read_record(
            record, end, last_offset_delta
        )
        if at == 0:
            return 0
        block[row, RECORD] = record
        block[row, RECORD_END] = at
        block[row, TIMESTAMP_DELTA] = timestamp_delta
        block[row, REST] = rest
        block[row, OFFSET_DELTA] = offset_delta
        block[row, KEY_SIZE] = key_size
        block[row, VALUE_SIZE] = value_size
        if key_size >= 0:
            low, high = siphash(secret, key_at, key_size)
            fetch_slot(table, low)
            hashes[row, 0] = low
            hashes[row, 1] = high
    return at


@kernel(types.UniTuple(_INT64, 3)(_INT64[:, ::1], TABLE, SECRET, _INT64, _INT64))
def map_keys(
    batches: np.ndarray, table: np.ndarray, secret: np.ndarray, used: int, used_max: int
) -> tuple[int, int, int]:
    """(FINISHED, MALFORMED, or MORE if the table is full; the number of batches done; the slots used then)."""
    block, hashes = np.empty((_BLOCK, _BLOCK_COLUMNS), np.int64), np.empty((_BLOCK, 2), np.uint64)
    for batch in range(len(batches)):
        at = batches[batch, DATA_ADDRESS]
        end = at + batches[batch, DATA_BYTES]
        base_offset, last_offset_delta = batches[batch, BASE_OFFSET], batches[batch, LAST_OFFSET_DELTA]
        left = batches[batch, RECORD_COUNT]
        while left > 0:
            count = min(left, _BLOCK)
            left -= count
            at = _read_block(at, end, count, last_offset_delta, table, secret, hashes, block)
            if at == 0:
                return MALFORMED, batch, used
            for row in range(count):
                if block[row, KEY_SIZE] < 0:
                    continue
                low, high = hashes[row, 0], hashes[row, 1]
                slot = find_slot(table, low, high)
                if table[slot, 2] == 0:
                    if used >= used_max:
                        return MORE, batch, used
                    used += 1
                    table[slot, 0] = low
                    table[slot, 1] = high
                latest = np.uint64(base_offset + block[row, OFFSET_DELTA] + 1)
                if latest > table[slot, 2]:
                    table[slot, 2] = latest
        if at != end:
            return MALFORMED, batch, used
    return FINISHED, len(batches), used


@helper
def _write_record(at: int, record: int, rest: int, record_end: int, timestamp_delta: int) -> int:
    """The record with another timestamp delta; `rest` is what stands behind the old one. The address behind it."""
    _length, attributes = read_varint(record, record_end)
    at = write_varint(at, 1 + varint_size(timestamp_delta) + record_end - rest)
    store_u8(at, load_u8(attributes))
    at = write_varint(at + 1, timestamp_delta)
    copy_bytes(at, rest, record_end - rest)
    return at + record_end - rest


@helper
def _write_header(
    at: int, header: int, size: int, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> None:
    """The header at `header` with these fields of its own. Offsets, epochs and sequence numbers never change."""
    copy_bytes(at, header, _HEADER_BYTES)
    store_big_endian(at + 8, size - 12, 4)
    store_big_endian(at + 21, attributes, 2)
    store_big_endian(at + 27, base_timestamp, 8)
    store_big_endian(at + 35, max_timestamp, 8)
    store_big_endian(at + 57, count, 4)
    if size <= SMALL_BYTES_MAX:
        store_big_endian(at + 17, crc32c(at + _CRC_START, size - _CRC_START), 4)


@kernel(
    types.UniTuple(_INT64, 3)(
        _INT64[:, ::1], _INT64[::1], _INT64, TABLE, SECRET, _INT64, _INT64, _INT64, _INT64, _INT64, _INT64[:, ::1]
    )
)  # fmt: skip
def filter_batches(
    batches: np.ndarray,
    orders: np.ndarray,
    source: int,
    table: np.ndarray,
    secret: np.ndarray,
    now_ms: int,
    horizon_ms: int,
    growth_max: int,
    out: int,
    out_bytes: int,
    results: np.ndarray,
) -> tuple[int, int, int]:
    """(FINISHED, MALFORMED, or MORE if `out` is full; the number of batches done; the bytes written).

    The CRC of a new batch over SMALL_BYTES_MAX is the caller's to write, and compressing its records: what is written
    of a compressed batch is plain. All batches together grow by no more than `growth_max`: where they would, the
    batch stays as it is.
    """
    block, hashes = np.empty((_BLOCK, _BLOCK_COLUMNS), np.int64), np.empty((_BLOCK, 2), np.uint64)
    at, limit = out, out + out_bytes
    for batch in range(len(batches)):
        order, size = orders[batch], batches[batch, SIZE_BYTES]
        header = source + batches[batch, POSITION]
        start = batches[batch, DATA_ADDRESS]
        end = start + batches[batch, DATA_BYTES]
        count = batches[batch, RECORD_COUNT]
        attributes = batches[batch, ATTRIBUTES]
        base_offset, last_offset_delta = batches[batch, BASE_OFFSET], batches[batch, LAST_OFFSET_DELTA]
        base_timestamp, max_timestamp = batches[batch, BASE_TIMESTAMP], batches[batch, MAX_TIMESTAMP]
        is_append_time = attributes & _LOG_APPEND_TIME != 0
        had_horizon = attributes & _DELETE_HORIZON != 0
        deletes = had_horizon and base_timestamp <= now_ms
        kept = tombstones = written = 0
        if order & VERBATIM:
            kept = count
        elif not order & DISCARD:
            if count * RECORD_BYTES_MIN > end - start:
                return MALFORMED, batch, at - out
            if at + max(size, _HEADER_BYTES + end - start + count * GROWTH_BYTES_MAX) > limit:
                return MORE, batch, at - out
            sets_horizon = order & SET_HORIZON != 0 and not had_horizon
            again = True
            while again:  # a second time when the first meets a tombstone that has no horizon yet
                again = False
                rewrites = sets_horizon and not is_append_time  # then all records share one timestamp, and no delta
                kept = tombstones = 0
                latest_timestamp = -1
                write = at + _HEADER_BYTES
                record = uncopied = start
                left = count
                while left > 0 and not again:
                    rows = min(left, _BLOCK)
                    left -= rows
                    if _read_block(record, end, rows, last_offset_delta, table, secret, hashes, block) == 0:
                        return MALFORMED, batch, at - out
                    for row in range(rows):
                        record, record_end = block[row, RECORD], block[row, RECORD_END]
                        keep = True
                        if not order & KEEP_RECORDS:
                            is_tombstone = block[row, VALUE_SIZE] < 0
                            keep = block[row, KEY_SIZE] >= 0 and not (is_tombstone and deletes)
                            if keep:
                                slot = find_slot(table, hashes[row, 0], hashes[row, 1])
                                keep = np.uint64(base_offset + block[row, OFFSET_DELTA] + 1) >= table[slot, 2]
                            if keep and is_tombstone:
                                tombstones += 1
                                if not had_horizon and not sets_horizon:
                                    sets_horizon = again = True
                                    break
                        if keep:
                            kept += 1
                            timestamp = base_timestamp
                            if base_timestamp != -1:
                                timestamp = base_timestamp + block[row, TIMESTAMP_DELTA]
                            latest_timestamp = max(latest_timestamp, timestamp)
                            if rewrites:
                                write = _write_record(
                                    write, record, block[row, REST], record_end, timestamp - horizon_ms
                                )
                        elif not rewrites:
                            copy_bytes(write, uncopied, record - uncopied)
                            write += record - uncopied
                            uncopied = record_end
                        record = record_end
            if record != end:
                return MALFORMED, batch, at - out
            if not is_append_time:
                max_timestamp = latest_timestamp
            if kept and (kept < count or sets_horizon):
                if not rewrites:
                    copy_bytes(write, uncopied, end - uncopied)
                    write += end - uncopied
                if sets_horizon:
                    attributes |= _DELETE_HORIZON
                    base_timestamp = horizon_ms
                written = write - at
                if written - size > growth_max:
                    kept, written, max_timestamp = count, 0, batches[batch, MAX_TIMESTAMP]
        action = REWRITTEN
        if written:
            _write_header(at, header, written, attributes, base_timestamp, max_timestamp, kept)
        elif at + size > limit:
            return MORE, batch, at - out
        elif kept or (count == 0 and order & VERBATIM):
            action, written = COPIED, size
            max_timestamp = batches[batch, MAX_TIMESTAMP] if count else -1
            copy_bytes(at, header, size)
        elif order & RETAIN_EMPTY:
            action, written, max_timestamp = EMPTIED, _HEADER_BYTES, -1
            attributes &= _LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL
            _write_header(at, header, written, attributes, -1, batches[batch, MAX_TIMESTAMP], 0)
        else:
            action = DROPPED
        growth_max -= written - size
        results[batch, ACTION] = action
        results[batch, OUT_POSITION] = at - out
        results[batch, OUT_BYTES] = written
        results[batch, KEPT] = kept
        results[batch, TOMBSTONES] = tombstones
        results[batch, OUT_MAX_TIMESTAMP] = max_timestamp
        at += written
    return FINISHED, len(batches), at - out
