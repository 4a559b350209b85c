"""Which batches of a record set belong to transactions that were aborted: whole batches, found by their headers.

A broker tells with a record set which transactions in it were aborted, each by its producer and its first offset. All
that this producer has written from there on, up to its ABORT marker, is to be left out; a producer has one transaction
open at a time, so the marker ends all of its that have begun.
"""

from collections.abc import Sequence

import numpy as np

from pylog.storage.kernels.cache import helper, kernel, types
from pylog.storage.kernels.decode import (
    ATTRIBUTES,
    BASE_OFFSET,
    DATA_ADDRESS,
    DATA_BYTES,
    LAST_OFFSET_DELTA,
    POSITION,
    RECORD_COUNT,
    read_extent,
    read_varint,
)
from pylog.storage.kernels.memory import load_big_endian

_INT64 = types.int64
_PRODUCER_ID_AT = 43
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_ABORT = 0
_MARKER_KEY_BYTES = 4  # version, type


def mark_aborted(address: int, batches: np.ndarray, aborted: Sequence[tuple[int, int]]) -> None:
    """Give aborted batches in a table of `decode.scan_batches` the attribute CONTROL: they hold no rows either.

    `aborted` are (producer id, first offset), in any order. The table is of all batches that came with them: a marker
    that is left out would not end its transaction."""
    ordered = np.array(sorted(aborted), np.int64).reshape(-1, 2)
    _mark(address, batches, np.ascontiguousarray(ordered[:, 0]), np.ascontiguousarray(ordered[:, 1]))


@helper
def _is_abort(batches: np.ndarray, batch: int) -> bool:
    """Of a control batch, whatever its bytes say: its one record is read no further than to its key."""
    if batches[batch, RECORD_COUNT] < 1:  # compaction has emptied it
        return False
    at = batches[batch, DATA_ADDRESS]
    end = at + batches[batch, DATA_BYTES]
    _length, at = read_varint(at, end)
    if at == 0:
        return False
    _timestamp, at = read_varint(at + 1, end)
    if at == 0:
        return False
    _offset, at = read_varint(at, end)
    if at == 0:
        return False
    key, size, at = read_extent(at, end)
    return at != 0 and size >= _MARKER_KEY_BYTES and load_big_endian(key + 2, 2) == _ABORT


@kernel(types.void(_INT64, _INT64[:, ::1], _INT64[::1], _INT64[::1]))
def _mark(address: int, batches: np.ndarray, producer_ids: np.ndarray, first_offsets: np.ndarray) -> None:
    """Both ordered by producer, then by offset."""
    ended = np.zeros(len(producer_ids), np.int64)  # of a producer, at its first place: how many of its are over
    for batch in range(len(batches)):
        attributes = batches[batch, ATTRIBUTES]
        if not attributes & _TRANSACTIONAL:
            continue
        producer_id = load_big_endian(address + batches[batch, POSITION] + _PRODUCER_ID_AT, 8)
        place = np.searchsorted(producer_ids, producer_id)
        if place == len(producer_ids) or producer_ids[place] != producer_id:
            continue
        last_offset = batches[batch, BASE_OFFSET] + batches[batch, LAST_OFFSET_DELTA]
        current = place + ended[place]
        begun = current
        while begun < len(producer_ids) and producer_ids[begun] == producer_id and first_offsets[begun] <= last_offset:
            begun += 1
        if not attributes & _CONTROL:
            if begun > current:
                batches[batch, ATTRIBUTES] = attributes | _CONTROL
        elif _is_abort(batches, batch):
            ended[place] = begun - place
