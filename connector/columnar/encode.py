"""Arrow columns to record batches, split by partition.

Rows keep their order within a partition. A batch is cut before it would pass `batch_size_bytes` (uncompressed,
header included); a larger record gets a batch of its own. Base offsets are 0, as producers send them; producer
id, epoch and sequence are -1, and the bytes are writable for whoever has better, and then makes the CRC.
"""

import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pylog.connector.columnar import extents
from pylog.connector.columnar.extents import Extents
from pylog.storage import codecs
from pylog.storage.batch import CRC_START, HEADER_BYTES, PREFIX_BYTES
from pylog.storage.checksum import crc32c
from pylog.storage.kernels import encode as kernels

PARTITIONS_MAX = 1 << 20
GROUP_BYTES = 512 << 10  # written together: the CRC finds them in the processor's cache
_FINISHED = (kernels.SIZE_BYTES, kernels.PARTITION, kernels.COUNT)
_CRC = struct.Struct(">I")
_BATCH_BYTES_MAX = (1 << 31) - 1
_TIMESTAMP_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_Headers = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_NO_HEADERS = (*Extents.empty(0), *Extents.empty(0), *Extents.empty(0))


class EncodedBatch(NamedTuple):
    partition: int
    records: memoryview
    record_count: int


class RowEncoder:
    def __init__(
        self,
        codec: int = codecs.NONE,
        level: int | None = None,
        batch_size_bytes: int = 1 << 20,
        *,
        with_crc: bool = True,
    ) -> None:
        if codec not in codecs.NAME_BY_CODEC:
            raise ValueError(f"unknown compression codec {codec}")
        if not HEADER_BYTES < batch_size_bytes <= _BATCH_BYTES_MAX:
            raise ValueError(f"a batch takes more than {HEADER_BYTES} bytes and less than 2 GiB: {batch_size_bytes}")
        self._codec = codec
        self._level = level
        self._batch_size_bytes = batch_size_bytes
        self._with_crc = with_crc

    def encode(
        self, rows: pa.RecordBatch | pa.Table, partition_ids: np.ndarray, now_ms: int | None = None
    ) -> list[EncodedBatch]:
        """Columns `value` and, if there, `key`, `headers` and `timestamp`; others are left alone.

        `timestamp` is an Arrow timestamp or milliseconds; rows without one are written at `now_ms`.
        """
        count = rows.num_rows
        if partition_ids.shape != (count,):
            raise ValueError(f"{partition_ids.shape} partitions for {count} rows")
        if partition_ids.dtype != np.int32:
            raise TypeError(f"partitions must be int32, not {partition_ids.dtype}")
        if "value" not in rows.schema.names:
            raise ValueError(f"there is no column 'value' among {rows.schema.names}")
        if not count:
            return []
        partition_ids = np.ascontiguousarray(partition_ids)
        key = extents.of_bytes("key", rows["key"]) if "key" in rows.schema.names else Extents.nulls(count)
        value = extents.of_bytes("value", rows["value"])
        headers, headers_bytes = _headers(rows)
        timestamps = _timestamps(rows, int(time.time() * 1000) if now_ms is None else now_ms)
        order = _order(partition_ids)
        body_bytes = np.empty(count, np.int64)
        plan = np.empty((count, kernels.PLAN_COLUMNS), np.int64)
        batch_count, total_bytes = kernels.plan_batches(
            order,
            partition_ids,
            timestamps,
            key.length,
            value.length,
            headers_bytes,
            self._batch_size_bytes,
            body_bytes,
            plan,
        )
        plan = plan[:batch_count]
        if plan[:, kernels.SIZE_BYTES].max() > _BATCH_BYTES_MAX:
            raise ValueError("a record with more than 2 GiB does not fit into a batch")
        out = np.empty(total_bytes, np.uint8)
        address, position = out.__array_interface__["data"][0], 0
        encoded: list[EncodedBatch] = []
        for group in _groups(plan):
            kernels.write_batches(group, order, body_bytes, timestamps, *key, *value, *headers, address + position)
            for size_bytes, partition, record_count in group[:, _FINISHED].tolist():
                records = self._finish(out.data[position : position + size_bytes])
                encoded.append(EncodedBatch(partition, records, record_count))
                position += size_bytes
        return encoded

    def _finish(self, batch: memoryview) -> memoryview:
        """Compress the records, and put the CRC in its place."""
        if self._codec != codecs.NONE:
            batch = self._compress(batch)
        if self._with_crc:
            _CRC.pack_into(batch, 17, crc32c(batch[CRC_START:]))
        return batch

    def _compress(self, batch: memoryview) -> memoryview:
        data = codecs.compress(self._codec, batch[HEADER_BYTES:], self._level)
        compressed = bytearray(HEADER_BYTES + len(data))
        compressed[:HEADER_BYTES] = batch[:HEADER_BYTES]
        compressed[HEADER_BYTES:] = data
        struct.pack_into(">i", compressed, 8, len(compressed) - PREFIX_BYTES)
        struct.pack_into(">h", compressed, CRC_START, self._codec)
        return memoryview(compressed)


def _groups(plan: np.ndarray) -> Iterator[np.ndarray]:
    """Consecutive batches of about `GROUP_BYTES`."""
    ends = plan[:, kernels.SIZE_BYTES].cumsum()
    start = 0
    while start < len(plan):
        before = ends[start - 1] if start else 0
        end = int(ends.searchsorted(before + GROUP_BYTES)) + 1
        yield plan[start:end]
        start = end


def _order(partition_ids: np.ndarray) -> np.ndarray:
    lowest, highest = int(partition_ids.min()), int(partition_ids.max())
    if lowest < 0 or highest >= PARTITIONS_MAX:
        raise ValueError(f"partition {lowest if lowest < 0 else highest} is not between 0 and {PARTITIONS_MAX - 1}")
    if lowest == highest:
        return np.arange(len(partition_ids))
    order = np.empty(len(partition_ids), np.int64)
    kernels.sort_by_partition(partition_ids, np.zeros(highest + 2, np.int64), order)
    return order


def _headers(rows: pa.RecordBatch | pa.Table) -> tuple[_Headers, np.ndarray]:
    """(first and count of each row, key and value extents of each header, bytes that each row's headers take)."""
    if "headers" not in rows.schema.names or rows["headers"].null_count == len(rows["headers"]):
        return _NO_HEADERS, np.empty(0, np.int64)
    of_rows, keys, values = [], [], []
    first = 0
    for chunk in extents.chunks(rows["headers"]):
        _check_headers_type(chunk.type)
        structs = chunk.values
        key = extents.of_bytes("headers.key", structs.field(0))
        if structs.null_count:
            key.length[structs.is_null().to_numpy(zero_copy_only=False)] = -1  # refused below, if a row uses it
        of_rows.append(extents.of_lists("headers", chunk, first))
        keys.append(key)
        values.append(extents.of_bytes("headers.value", structs.field(1)))
        first += len(structs)
    row, key, value = (Extents(*map(np.concatenate, zip(*parts, strict=True))) for parts in (of_rows, keys, values))
    size_bytes = np.empty(rows.num_rows, np.int64)
    bad = kernels.measure_headers(*row, key.length, value.length, size_bytes)
    if bad >= 0:
        raise ValueError(f"row {bad}: a header must have a key that is not null")
    return (*row, *key, *value), size_bytes


def _check_headers_type(arrow_type: pa.DataType) -> None:
    is_list = pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)
    element = arrow_type.value_type if is_list else None
    if element is None or not pa.types.is_struct(element) or [field.name for field in element] != ["key", "value"]:
        raise TypeError(f"column 'headers' must be an array of structs (key string, value binary), not {arrow_type}")


def _timestamps(rows: pa.RecordBatch | pa.Table, now_ms: int) -> np.ndarray:
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, now_ms, np.int64)
    column = rows["timestamp"]
    if pa.types.is_timestamp(column.type):
        factor, divisor = _TIMESTAMP_MS[column.type.unit]
    elif pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        factor, divisor = 1, 1
    else:
        raise TypeError(f"column 'timestamp' must be a timestamp or milliseconds, not {column.type}")
    is_null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if numbers.min() < 0:
        raise ValueError(f"row {int(numbers.argmin())}: a record's timestamp cannot be before 1970")
    if numbers.max() > np.iinfo(np.int64).max // factor:
        raise ValueError(f"row {int(numbers.argmax())}: the timestamp does not fit into milliseconds")
    milliseconds = np.array(numbers * factor // divisor if factor != divisor else numbers, np.int64)
    if is_null is not None:
        milliseconds[is_null] = now_ms
    return milliseconds
