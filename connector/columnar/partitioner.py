"""The partition of each row, as Kafka's default partitioner chooses it.

A partition that the row names wins; then murmur2 of the key, so that equal keys meet whichever client wrote them;
rows with neither stick to one partition for about a batch, because full batches are cheap, and then take the next.
"""

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylog.connector.columnar import extents
from pylog.connector.columnar.extents import Column
from pylog.storage.kernels import partition as kernels

_ROW_OVERHEAD_BYTES = 10  # of a record without headers: lengths, deltas
_FILL = 15 / 16  # of a batch: keys, headers and times are not counted, and a run too long leaves a tiny batch behind


class Sticky:
    """Where rows without a key go. Lives as long as the task: partitions get equal shares over its batches.

    It starts at a random partition, lest many short tasks all fill the same one."""

    def __init__(self, batch_size_bytes: int, start: int | None = None) -> None:
        if batch_size_bytes <= 0:
            raise ValueError(f"a partition cannot be kept for {batch_size_bytes} bytes")
        self._batch_size_bytes = batch_size_bytes
        self._partition = random.randrange(1 << 31) if start is None else start
        self._used_bytes = 0

    def assign(self, ids: np.ndarray, row_bytes: np.ndarray, partition_count: int) -> None:
        """Fill in the ids that are still -1."""
        self._partition, self._used_bytes = kernels.partition_sticky(
            row_bytes, partition_count, self._batch_size_bytes, self._partition % partition_count, self._used_bytes, ids
        )


class RowPartitioner:
    """Gives the rows of one topic their partitions, table after table."""

    def __init__(self, batch_size_bytes: int, *, round_robin: bool = False, ignore_keys: bool = False) -> None:
        # Round-robin: no row is smaller than a byte, so each takes the next partition.
        self._sticky = Sticky(1 if round_robin else max(int(batch_size_bytes * _FILL), 1))
        self._ignore_keys = ignore_keys or round_robin

    def partition_ids(self, rows: pa.RecordBatch | pa.Table, partition_count: int) -> np.ndarray:
        key, explicit, value = (_column(rows, name) for name in ("key", "partition", "value"))
        return partition_ids(None if self._ignore_keys else key, explicit, partition_count, self._sticky, value)


def highest_named(rows: pa.RecordBatch | pa.Table) -> int:
    """The largest partition that a row names; -1 if none does."""
    explicit = _column(rows, "partition")
    if explicit is None or not pa.types.is_integer(explicit.type):
        return -1
    highest: int | None = pc.max(explicit).as_py()
    return -1 if highest is None else highest


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> Column | None:
    return rows[name] if name in rows.schema.names else None


def partition_ids(
    key: Column | None, explicit: Column | None, partition_count: int, sticky: Sticky, value: Column | None = None
) -> np.ndarray:
    """int32, one for each row. At least one column says how many rows there are; `value` also how large they are."""
    columns = [column for column in (key, explicit, value) if column is not None]
    if not columns or any(len(column) != len(columns[0]) for column in columns):
        raise ValueError(f"columns of {[len(column) for column in columns]} rows cannot be given partitions")
    if partition_count < 1:
        raise ValueError(f"a topic has at least one partition, not {partition_count}")
    ids = _explicit(explicit, partition_count) if explicit is not None else np.full(len(columns[0]), -1, np.int32)
    if key is not None and key.null_count < len(key):
        kernels.partition_by_key(*extents.of_bytes("key", key), partition_count, ids)
    if len(ids) and ids.min() < 0:
        row_bytes = np.full(len(ids), _ROW_OVERHEAD_BYTES, np.int32)
        if value is not None:
            row_bytes += np.maximum(extents.of_bytes("value", value).length, 0)
        sticky.assign(ids, row_bytes, partition_count)
    return ids


def _explicit(column: Column, partition_count: int) -> np.ndarray:
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise TypeError(f"column 'partition' must be an integer, not {column.type}")
    numbers = column.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    bad = (numbers < 0) | (numbers >= partition_count)
    if column.null_count:
        bad &= column.is_valid().to_numpy(zero_copy_only=False)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"row {row}: there is no partition {numbers[row]}; the topic has {partition_count}")
    ids: np.ndarray = numbers.astype(np.int32)
    return ids
