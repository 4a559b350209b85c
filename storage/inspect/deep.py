"""The records of a batch, decompressed and decoded: do they agree with its header?

Kernels look first, at a gigabyte a second or so; what they refuse, the plain decoder explains. Without the kernels
it looks at everything itself, a hundred times slower.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from pylog.storage import codecs
from pylog.storage.batch import HEADER_BYTES, LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, Buffer
from pylog.storage.errors import StorageError
from pylog.storage.records import decode_batch
from pylog.storage.transactions import read_marker

Look = Callable[[Buffer, int, int], tuple[bool, int]]


class Depth(NamedTuple):
    records: bool  # also the records, not only the headers and CRCs of their batches
    look: Look | None = None  # kernels, where there are any


def records_problem(batch: Buffer, header: BatchHeader, look: Look | None) -> str | None:
    """What is wrong with the records of a batch whose header and CRC are right; None if nothing is."""
    try:
        if look is not None:
            data = codecs.decompress(header.codec, memoryview(batch)[HEADER_BYTES:])
            sound, latest_delta = look(data, header.record_count, header.last_offset_delta)
            if not sound or not _timestamp_fits(header, header.base_timestamp + latest_delta):
                return _plain_problem(batch, header)
        elif problem := _plain_problem(batch, header):
            return problem
        if header.is_control:
            read_marker(batch)
    except StorageError as error:
        return str(error)
    return None


def _plain_problem(batch: Buffer, header: BatchHeader) -> str | None:
    records = decode_batch(batch)
    for earlier, later in pairwise(records):
        if later.offset <= earlier.offset:
            return f"the record at offset {later.offset} follows the one at {earlier.offset}"
    if records:
        latest = max(record.timestamp_ms for record in records)
        if not _timestamp_fits(header, latest):
            return f"the latest record has timestamp {latest}, the batch says {header.max_timestamp}"
    return None


def _timestamp_fits(header: BatchHeader, latest: int) -> bool:
    if not header.record_count or header.attributes & LOG_APPEND_TIME or header.base_timestamp == NO_TIMESTAMP:
        return True
    return latest == header.max_timestamp


def deep() -> Depth:
    """The kernels take half a second to load, so only whoever goes deep does."""
    try:
        from pylog.storage.kernels.check import records_are_sound
    except ImportError:
        return Depth(records=True)
    return Depth(records=True, look=records_are_sound)


SHALLOW = Depth(records=False)
