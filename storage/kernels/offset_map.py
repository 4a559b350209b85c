"""The latest offset of every key, in a table of bounded size: 24 bytes a slot, the keys themselves are not kept.

A key stands in it as its SipHash-2-4 of 128 bits under a random key of this run. Two keys with one hash would lose
the older one's record; nobody can look for such keys without knowing the run's key, and by chance there are none.
"""

import os

import numpy as np

from pylog.storage.kernels.cache import helper, kernel, types
from pylog.storage.kernels.memory import load_i64, load_u8, prefetch

ENTRY_BYTES = 24
LOAD_MAX = 0.9  # Kafka's log.cleaner.io.buffer.load.factor: beyond it probes get long

_GROWTH, _STEPS = 4, 4
_GROWTH_BYTES_MIN = 1 << 20

_INT64, _UINT64 = types.int64, types.uint64
TABLE = _UINT64[:, ::1]  # of each slot: both halves of the hash, and the offset + 1; 0 if nothing is there
SECRET = _UINT64[::1]

_V0, _V1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D ^ 0xEE)  # 0xee: a hash of 128 bits
_V2, _V3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_EE, _DD, _ONE = np.uint64(0xEE), np.uint64(0xDD), np.uint64(1)
_13, _16, _17, _21, _32 = np.uint64(13), np.uint64(16), np.uint64(17), np.uint64(21), np.uint64(32)
_43, _47, _48, _51, _56 = np.uint64(43), np.uint64(47), np.uint64(48), np.uint64(51), np.uint64(56)


class OffsetMap:
    """Grows in steps, old and new table within `size_bytes` together: a small log does not touch all that memory."""

    def __init__(self, size_bytes: int) -> None:
        largest = max(1, size_bytes // ENTRY_BYTES)
        self._coming = [largest]
        if size_bytes >= _GROWTH_BYTES_MIN:
            largest = largest * _GROWTH // (_GROWTH + 1)
            self._coming = [largest // _GROWTH**step for step in range(_STEPS)]
        self.keys_max = int(largest * LOAD_MAX)
        self.secret = np.frombuffer(os.urandom(16), np.uint64).copy()
        self.used = 0
        self.table = _new_table(self._coming.pop())

    @property
    def used_max(self) -> int:
        """Of the present table."""
        return int(len(self.table) * LOAD_MAX)

    def grow(self) -> bool:
        """False if the table is as large as it may get."""
        if not self._coming:
            return False
        table = _new_table(self._coming.pop())
        _move(self.table, table)
        self.table = table
        return True


def _new_table(slots: int) -> np.ndarray:
    return np.zeros((slots, 3), np.uint64)


@helper
def _round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    v0 += v1
    v2 += v3
    v1 = ((v1 << _13) | (v1 >> _51)) ^ v0
    v3 = ((v3 << _16) | (v3 >> _48)) ^ v2
    v0 = (v0 << _32) | (v0 >> _32)
    v2 += v1
    v0 += v3
    v1 = ((v1 << _17) | (v1 >> _47)) ^ v2
    v3 = ((v3 << _21) | (v3 >> _43)) ^ v0
    v2 = (v2 << _32) | (v2 >> _32)
    return v0, v1, v2, v3


@helper
def siphash(secret: np.ndarray, address: int, length: int) -> tuple[np.uint64, np.uint64]:
    """SipHash-2-4 with 128 bits of result, low half first."""
    v0, v1 = secret[0] ^ _V0, secret[1] ^ _V1
    v2, v3 = secret[0] ^ _V2, secret[1] ^ _V3
    at = address
    end = address + (length & ~7)
    while at < end:
        word = np.uint64(load_i64(at))
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    rest = 0
    for number in range(length & 7):
        rest |= load_u8(at + number) << (8 * number)
    word = np.uint64(rest) | (np.uint64(length) << _56)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _EE
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _DD
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@helper
def find_slot(table: np.ndarray, low: np.uint64, high: np.uint64) -> np.uint64:
    """Where this hash stands, or would stand. There is always an empty slot."""
    slots = np.uint64(len(table))
    slot = low % slots
    while table[slot, 2] != 0 and (table[slot, 0] != low or table[slot, 1] != high):
        slot += _ONE
        if slot == slots:
            slot = np.uint64(0)
    return slot


@helper
def fetch_slot(table: np.ndarray, low: np.uint64) -> None:
    """Have the place where this hash may stand brought into the cache: most of the time is waiting for it."""
    prefetch(table.ctypes.data + np.int64(low % np.uint64(len(table))) * ENTRY_BYTES)


@kernel(types.void(TABLE, TABLE))
def _move(old: np.ndarray, new: np.ndarray) -> None:
    for slot in range(len(old)):
        if old[slot, 2] != 0:
            place = find_slot(new, old[slot, 0], old[slot, 1])
            for column in range(3):
                new[place, column] = old[slot, column]


@kernel(types.UniTuple(_UINT64, 2)(SECRET, _INT64, _INT64))
def hash_key(secret: np.ndarray, address: int, length: int) -> tuple[np.uint64, np.uint64]:
    """One hash, for the tests."""
    return siphash(secret, address, length)
