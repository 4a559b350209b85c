"""Logs to measure: made by `PartitionLog.append`, of batches of one size whose records are a millisecond apart."""

import os
from pathlib import Path

from pylog.storage.batch import pack_header, read_header
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import Record, encode_batch

KB, MB, GB = 1_000, 1_000_000, 1_000_000_000
BATCH_16_KB, BATCH_1_KB, BATCH_1_MB = 16_384, 1_024, 1_048_576
RECORD_BYTES = 1_000
FIRST_MS = 1_700_000_000_000

_APPEND_BYTES = 1 << 20  # of a log that is only to be there: many batches in one call
_FILL_TRIES = 8  # the bytes of a length depend on the length


def batch_of(size_bytes: int) -> bytearray:
    """One batch of exactly so many bytes, of records that do not compress, the last one shorter than the others."""
    whole = max(0, (size_bytes - 100) // (RECORD_BYTES + 20))
    records = [Record(number, FIRST_MS + number, None, os.urandom(RECORD_BYTES)) for number in range(whole)]
    length = size_bytes - len(encode_batch([*records, Record(whole, FIRST_MS + whole, None, b"")]))
    for shorter in range(_FILL_TRIES):
        last = Record(whole, FIRST_MS + whole, None, os.urandom(length - shorter))
        made = encode_batch([*records, last])
        if len(made) == size_bytes:
            return made
    raise AssertionError(f"no last record makes a batch of {size_bytes} bytes")


def make_log(directory: Path, size_bytes: int, batch_bytes: int) -> None:
    """A log of at least `size_bytes`, and one batch, closed cleanly and on the disk."""
    log = PartitionLog(directory, LogConfig())
    one = batch_of(batch_bytes)
    count = max(1, _APPEND_BYTES // batch_bytes)
    buffer = bytearray(one * count)
    header = read_header(one)
    while log.size_bytes < size_bytes:
        for number in range(count):
            first_ms = FIRST_MS + log.log_end_offset + number * header.record_count
            last_ms = first_ms + header.last_offset_delta
            stamped = header._replace(base_timestamp=first_ms, max_timestamp=last_ms)
            pack_header(buffer, number * batch_bytes, stamped)
        log.append(buffer, 0)
    log.close()


def shown_bytes(size_bytes: int) -> str:
    for unit, name in ((GB, "GB"), (MB, "MB"), (KB, "KB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes} B"
