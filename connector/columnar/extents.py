"""Where the bytes of an Arrow column are: an address and a length for each row, -1 for null. Nothing is copied.

The arrays only point; who holds extents holds the column too.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pylog.storage.kernels import encode as kernels

Column: TypeAlias = pa.Array | pa.ChunkedArray


class Extents(NamedTuple):
    address: np.ndarray
    length: np.ndarray

    @classmethod
    def empty(cls, rows: int) -> "Extents":
        return cls(np.empty(rows, np.int64), np.empty(rows, np.int32))

    @classmethod
    def nulls(cls, rows: int) -> "Extents":
        return cls(np.zeros(rows, np.int64), np.full(rows, -1, np.int32))


def of_bytes(name: str, column: Column) -> Extents:
    """Of a binary or string column, large or not, sliced or not, in chunks or not."""
    if pa.types.is_null(column.type):
        return Extents.nulls(len(column))
    found = Extents.empty(len(column))
    row = 0
    for chunk in chunks(column):
        if not _is_bytes(chunk.type):
            raise TypeError(f"column {name!r} must be binary or string, not {chunk.type}")
        _validity, _offsets, data = chunk.buffers()
        part = Extents(*(array[row : row + len(chunk)] for array in found))
        _fill(name, chunk, data.address if data else 0, data.size if data else 0, part)
        row += len(chunk)
    return found


def of_lists(name: str, column: pa.Array, first: int) -> Extents:
    """Of one list array: the number of its first element (of the values, plus `first`) and how many."""
    found = Extents.empty(len(column))
    _fill(name, column, first, len(column.values), found)
    return found


def chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _is_bytes(arrow_type: pa.DataType) -> bool:
    is_bytes: bool = arrow_type in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
    return is_bytes


def _fill(name: str, array: pa.Array, data_address: int, data_bytes: int, part: Extents) -> None:
    if not len(array):
        return  # Arrow may leave out the offsets of an empty array
    validity, offsets = array.buffers()[:2]
    offset_bytes = 8 if str(array.type).startswith("large_") else 4
    if offsets.size < offset_bytes * (array.offset + len(array) + 1):
        raise ValueError(f"column {name!r} is damaged: its offsets are too few")
    bad = kernels.extents(
        offsets.address,
        offset_bytes,
        validity.address if validity else 0,
        array.offset,
        data_address,
        data_bytes,
        part.address,
        part.length,
    )
    if bad >= 0:
        raise ValueError(f"column {name!r}, row {bad}: the value is damaged or has more than 2 GiB")
