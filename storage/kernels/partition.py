"""Which partition each row goes to, by its key or, without one, where the rows before it went."""

import numpy as np

from pylog.storage.kernels.cache import helper, kernel, types
from pylog.storage.kernels.memory import load_u8, load_u32

_INT64 = types.int64
_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
_R24, _R15, _R13 = np.uint32(24), np.uint32(15), np.uint32(13)


@helper
def murmur2(address: int, length: int) -> np.uint32:
    hashed = np.uint32(_SEED ^ np.uint32(length))
    end = address + (length & ~3)
    at = address
    while at < end:
        word = np.uint32(load_u32(at) * _M)
        word = np.uint32(np.uint32(word ^ (word >> _R24)) * _M)
        hashed = np.uint32(np.uint32(hashed * _M) ^ word)
        at += 4
    tail = length & 3
    if tail > 0:
        rest = load_u8(at)
        if tail > 1:
            rest |= load_u8(at + 1) << 8
        if tail > 2:
            rest |= load_u8(at + 2) << 16
        hashed = np.uint32(np.uint32(hashed ^ np.uint32(rest)) * _M)
    hashed = np.uint32(np.uint32(hashed ^ (hashed >> _R13)) * _M)
    return np.uint32(hashed ^ (hashed >> _R15))


@kernel(types.void(_INT64[::1], types.int32[::1], _INT64, types.int32[::1]))
def partition_by_key(address: np.ndarray, length: np.ndarray, partition_count: int, ids: np.ndarray) -> None:
    """murmur2, as Kafka's default partitioner; rows that already have an id, or have no key, are left alone."""
    for row in range(len(ids)):
        if ids[row] < 0 and length[row] >= 0:
            ids[row] = np.int64(murmur2(address[row], length[row]) & np.uint32(0x7FFFFFFF)) % partition_count


@kernel(types.UniTuple(_INT64, 2)(types.int32[::1], _INT64, _INT64, _INT64, _INT64, types.int32[::1]))
def partition_sticky(
    row_bytes: np.ndarray, partition_count: int, bytes_max: int, partition: int, used_bytes: int, ids: np.ndarray
) -> tuple[int, int]:
    """Rows without an id go where the last one went, and on to the next partition before `bytes_max` are passed.

    The partition and the bytes it has been given so far, to go on from."""
    for row in range(len(ids)):
        if ids[row] < 0:
            if used_bytes > 0 and used_bytes + row_bytes[row] > bytes_max:
                partition = (partition + 1) % partition_count
                used_bytes = 0
            ids[row] = partition
            used_bytes += row_bytes[row]
    return partition, used_bytes
