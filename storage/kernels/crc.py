"""CRC-32C for batches so small that calling the library costs more than its work: eight bytes a step, by tables."""

import numpy as np

from pylog.storage.kernels.cache import helper
from pylog.storage.kernels.memory import load_u8, load_u32

SMALL_BYTES_MAX = 512  # above it the library is faster, the call included

_POLYNOMIAL = 0x82F63B78


def _tables() -> np.ndarray:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for number in range(1, 8):
        tables[number] = tables[number - 1] >> 8 ^ tables[0, tables[number - 1] & 0xFF]
    return tables


_T = _tables()


@helper
def crc32c(at: int, length: int) -> np.int64:
    crc = np.int64(0xFFFFFFFF)
    end = at + length
    while end - at >= 8:
        low = np.int64(load_u32(at)) ^ crc
        high = np.int64(load_u32(at + 4))
        crc = np.int64(
            _T[7, low & 0xFF]
            ^ _T[6, (low >> 8) & 0xFF]
            ^ _T[5, (low >> 16) & 0xFF]
            ^ _T[4, low >> 24]
            ^ _T[3, high & 0xFF]
            ^ _T[2, (high >> 8) & 0xFF]
            ^ _T[1, (high >> 16) & 0xFF]
            ^ _T[0, high >> 24]
        )
        at += 8
    while at < end:
        crc = np.int64(_T[0, (crc ^ load_u8(at)) & 0xFF]) ^ (crc >> 8)
        at += 1
    return crc ^ 0xFFFFFFFF
