"""Whether the records of a batch are what its header says, without making anything of them.

Like every kernel this one does not explain what it refuses: the caller asks `records`, the plain twin, for words.
"""

import numpy as np

from pylog.storage.kernels.cache import kernel, types
from pylog.storage.kernels.decode import read_extent, read_varint

Buffer = bytes | bytearray | memoryview

_INT64 = types.int64
_RECORD_BYTES_MIN = 7  # seven one-byte fields


def records_are_sound(data: Buffer, record_count: int, last_offset_delta: int) -> tuple[bool, int]:
    """(whether `data` holds exactly these records, their offsets ascending; the largest timestamp delta)."""
    if not record_count:
        return not len(data), 0
    view = np.frombuffer(data, np.uint8)
    status, latest = _check_records(view.ctypes.data, len(view), record_count, last_offset_delta)
    return bool(status), int(latest)


@kernel(types.UniTuple(_INT64, 2)(_INT64, _INT64, _INT64, _INT64))
def _check_records(address: int, size_bytes: int, record_count: int, last_offset_delta: int) -> tuple[int, int]:
    at, end = address, address + size_bytes
    previous_delta, latest = -1, -0x7FFFFFFFFFFFFFFF
    for _ in range(record_count):
        length, field = read_varint(at, end)
        if field == 0 or length < _RECORD_BYTES_MIN - 1 or length > end - field:
            return 0, 0
        record_end = field + length
        timestamp_delta, field = read_varint(field + 1, record_end)
        if field == 0:
            return 0, 0
        offset_delta, field = read_varint(field, record_end)
        if field == 0 or offset_delta <= previous_delta or offset_delta > last_offset_delta:
            return 0, 0
        for _field in range(2):  # key, value
            _at, _size, field = read_extent(field, record_end)
            if field == 0:
                return 0, 0
        header_count, field = read_varint(field, record_end)
        if field == 0 or header_count < 0:
            return 0, 0
        for _header in range(header_count):  # ends early where the bytes do, whatever the count says
            _at, size, field = read_extent(field, record_end)
            if field == 0 or size < 0:
                return 0, 0
            _at, _size, field = read_extent(field, record_end)
            if field == 0:
                return 0, 0
        if field != record_end:
            return 0, 0
        previous_delta = offset_delta
        latest = max(latest, timestamp_delta)
        at = record_end
    return (1, latest) if at == end else (0, 0)
