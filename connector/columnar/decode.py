"""Fetched record batches to Arrow columns: exactly the columns asked for, in their order, for a window of offsets.

A `RowDecoder` serves one task: one topic partition and one schema. Python works once per Kafka batch (its CRC, its
decompression) and once per Arrow batch; records are handled by kernels only. What is not asked for is not copied.
"""

from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import pyarrow as pa

from pylog.storage import batch as batches
from pylog.storage import codecs, records
from pylog.storage.checksum import crc32c
from pylog.storage.errors import CorruptBatch, InvalidBatch, StorageError
from pylog.storage.kernels import decode as kernels

Buffer = bytes | bytearray | memoryview

ROWS = 10_000  # of an Arrow batch, about: what Spark takes best
GROUP_BYTES = 4 << 20  # handled together: what the CRC has read, the kernels find in the processor's cache
BYTES_MAX = 16 << 20  # of records in one Arrow batch, unless one alone is larger; far below int32 offsets

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}


def arrow_schema(columns: list[str]) -> pa.Schema:
    """These columns as Spark expects them: all nullable, with its names of nested fields."""
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])


class RowDecoder:
    """Keeps scratch memory between calls: take all rows of one `decode` before the next."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema) -> None:
        for field in schema:
            if field.name not in COLUMN_TYPES:
                raise ValueError(f"there is no column {field.name!r}; there are {', '.join(COLUMN_TYPES)}")
            if field.type != COLUMN_TYPES[field.name]:
                raise ValueError(f"column {field.name!r} is {COLUMN_TYPES[field.name]}, not {field.type}")
        if not schema.names or len(set(schema.names)) < len(schema.names):
            raise ValueError(f"columns must be named once each, and at least one: {schema.names}")
        self._topic = topic
        self._partition = partition
        self._schema = schema
        self._columns = [(field.name, field.type) for field in schema]  # iterating over a pa.Schema is slow
        self._cursor = np.zeros(kernels.CURSOR_FIELDS, np.int64)
        self._make_room(0)
        self._nulls = {name: pa.nulls(0, COLUMN_TYPES[name]) for name in ("key", "value", "headers")}
        self._constants: dict[tuple[str, int], pa.Array] = {}

    def decode(
        self, fetched: Buffer, offset_start: int, offset_end: int, aborted: Sequence[tuple[int, int]] = ()
    ) -> tuple[Iterator[pa.RecordBatch], int]:
        """(the rows with offset_start <= offset < offset_end, the next offset to fetch).

        `fetched` holds whole batches and perhaps a cut-off last one, which is left out: without a whole batch the
        next offset is `offset_start`. The rows are decoded as they are taken: a small fetch may hold gigabytes.
        `aborted` are the transactions (producer id, first offset) that the broker says are to be left out of it.
        Raises CorruptBatch, InvalidBatch, UnsupportedBatch or BatchTooLarge.
        """
        view = memoryview(fetched).cast("B")
        address = _address(np.frombuffer(view, np.uint8))
        table, bad_position = kernels.scan_batches(address, len(view))
        if aborted:
            from pylog.storage.kernels.aborted import mark_aborted  # most topics have none

            mark_aborted(address, table, aborted)
        wanted, next_offset = self._select(table, offset_start, offset_end)
        if next_offset >= offset_end:
            bad_position = -1  # behind what was asked for
        return self._arrow_batches(view, wanted, offset_start, offset_end, next_offset, bad_position), next_offset

    def _arrow_batches(
        self,
        view: memoryview,
        wanted: np.ndarray,
        offset_start: int,
        offset_end: int,
        next_offset: int,
        bad_position: int,
    ) -> Iterator[pa.RecordBatch]:
        headers = wanted[:, : kernels.RECORD_COUNT + 1].tolist()
        start = 0
        while start < len(wanted):
            # the plain data of compressed batches lives until the kernels have read it
            end, opened = self._open(view, wanted, headers, start)
            group = wanted[start:end]
            # markers, and what was aborted: checked like the others, so that no damaged marker decides about rows
            if (is_control := group[:, kernels.ATTRIBUTES] & batches.CONTROL).any():
                group = group[is_control == 0]
            yield from self._rows(view, group, offset_start, offset_end)
            del opened
            start = end
        if bad_position >= 0:
            self._explain(view, bad_position, next_offset)

    def _select(self, table: np.ndarray, offset_start: int, offset_end: int) -> tuple[np.ndarray, int]:
        """(the batches that may hold rows of the window, the next offset to fetch)."""
        if not len(table):
            return table, offset_start
        first = table[:, kernels.BASE_OFFSET]
        behind = first + table[:, kernels.LAST_OFFSET_DELTA] + 1
        if (disorder := np.flatnonzero(first[1:] < behind[:-1])).size:
            at = int(disorder[0])
            message = f"the batch at offset {first[at + 1]} follows one that ends at {behind[at]}"
            raise CorruptBatch(self._name(int(first[at + 1])) + message)
        wanted = slice(int(behind.searchsorted(offset_start, "right")), int(first.searchsorted(offset_end)))
        return table[wanted], min(max(int(behind[-1]), offset_start), offset_end)

    def _open(
        self, view: memoryview, table: np.ndarray, headers: list[list[int]], start: int
    ) -> tuple[int, list[np.ndarray]]:
        """Check batches from `start` on, and point the table at the plain data of those that are compressed.

        (Where to go on, that data): about `ROWS` rows or `GROUP_BYTES` plain bytes are opened together.
        """
        opened: list[np.ndarray] = []
        rows = plain_bytes = 0
        for row in range(start, len(headers)):
            if rows >= ROWS or plain_bytes >= GROUP_BYTES:
                return row, opened
            position, size_bytes, crc, attributes, record_count = headers[row]
            end = position + size_bytes
            if crc32c(view[position + batches.CRC_START : end]) != crc:
                self._explain(view, position, int(table[row, kernels.BASE_OFFSET]))
            codec = attributes & batches.CODEC_MASK
            if codec and not attributes & batches.CONTROL:
                try:
                    plain = codecs.decompress(codec, view[position + batches.HEADER_BYTES : end])
                except StorageError as error:
                    raise type(error)(self._name(int(table[row, kernels.BASE_OFFSET])) + str(error)) from error
                data = np.frombuffer(plain, np.uint8)
                table[row, kernels.DATA_ADDRESS] = _address(data)
                table[row, kernels.DATA_BYTES] = size_bytes = len(data)
                opened.append(data)
            rows += record_count
            plain_bytes += size_bytes
        return len(headers), opened

    def _rows(
        self, view: memoryview, table: np.ndarray, offset_start: int, offset_end: int
    ) -> Iterator[pa.RecordBatch]:
        cursor = self._cursor
        cursor[:] = 0
        # a count that says more than the data can hold must not make us allocate
        rows_left = int(np.minimum(table[:, kernels.RECORD_COUNT], table[:, kernels.DATA_BYTES]).sum())
        status = kernels.MORE
        while status == kernels.MORE:
            # equal parts rather than a small rest
            row_max = -(-rows_left // max(1, round(rows_left / ROWS)))
            if row_max > len(self._key_address):
                self._make_room(row_max)
            offsets, timestamps = pa.allocate_buffer(8 * row_max), pa.allocate_buffer(8 * row_max)
            status = kernels.walk_records(
                table,
                cursor,
                offset_start,
                offset_end,
                BYTES_MAX,
                self._key_address,
                self._key_length,
                self._value_address,
                self._value_length,
                np.frombuffer(offsets, np.int64),
                np.frombuffer(timestamps, np.int64),
                self._headers_address,
                self._headers_count,
            )
            if status not in (kernels.MORE, kernels.FINISHED):
                self._explain_records(view, table[cursor[kernels.NEXT_BATCH]], status)
            rows = int(cursor[kernels.ROWS])
            assert rows or status == kernels.FINISHED, "every call but the last finds rows"
            rows_left -= rows
            if rows:
                last = int(cursor[kernels.NEXT_BATCH]) - (cursor[kernels.NEXT_RECORD] == 0)
                timestamp_type = int(table[last, kernels.ATTRIBUTES] & batches.LOG_APPEND_TIME != 0)
                yield self._arrow_batch(rows, offsets, timestamps, timestamp_type)

    def _make_room(self, row_max: int) -> None:
        """Scratch for one Arrow batch; kept, because most calls need the same."""
        self._key_address = np.empty(row_max, np.int64)
        self._key_length = np.empty(row_max, np.int32)
        self._value_address = np.empty(row_max, np.int64)
        self._value_length = np.empty(row_max, np.int32)
        self._headers_address = np.empty(row_max, np.int64)
        self._headers_count = np.empty(row_max, np.int32)

    def _arrow_batch(self, rows: int, offsets: pa.Buffer, timestamps: pa.Buffer, timestamp_type: int) -> pa.RecordBatch:
        cursor = self._cursor.tolist()
        columns = []
        for name, arrow_type in self._columns:
            match name:
                case "key":
                    size_bytes, nulls = cursor[kernels.KEY_BYTES], cursor[kernels.KEY_NULLS]
                    column = self._bytes("key", rows, self._key_address, self._key_length, size_bytes, nulls)
                case "value":
                    size_bytes, nulls = cursor[kernels.VALUE_BYTES], cursor[kernels.VALUE_NULLS]
                    column = self._bytes("value", rows, self._value_address, self._value_length, size_bytes, nulls)
                case "topic":
                    column = self._constant("topic", 0, self._topic, rows)
                case "partition":
                    column = self._constant("partition", 0, self._partition, rows)
                case "offset":
                    column = pa.Array.from_buffers(arrow_type, rows, [None, offsets], 0)
                case "timestamp":
                    column = pa.Array.from_buffers(arrow_type, rows, [None, timestamps], 0)
                case "timestampType":
                    column = self._constant("timestampType", timestamp_type, timestamp_type, rows)
                case _:
                    column = self._headers(rows, cursor[kernels.HEADERS])
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _bytes(
        self, name: str, rows: int, address: np.ndarray, length: np.ndarray, size_bytes: int, nulls: int
    ) -> pa.Array:
        if nulls == rows:
            return self._all_null(name, rows)
        return _gather(pa.binary(), rows, address, length, size_bytes, nulls)

    def _headers(self, rows: int, header_count: int) -> pa.Array:
        if header_count == 0:
            return self._all_null("headers", rows)
        key_address, value_address = np.empty(header_count, np.int64), np.empty(header_count, np.int64)
        key_length, value_length = np.empty(header_count, np.int32), np.empty(header_count, np.int32)
        counts = self._headers_count[:rows]
        key_bytes, value_bytes = kernels.walk_headers(
            self._headers_address, counts, rows, key_address, key_length, value_address, value_length
        )
        keys = _valid_utf8(_gather(pa.string(), header_count, key_address, key_length, key_bytes, 0))
        value_nulls = int((value_length < 0).sum())
        values = _gather(pa.binary(), header_count, value_address, value_length, value_bytes, value_nulls)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
        list_offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(counts, out=list_offsets[1:])
        without = int((counts == 0).sum())
        buffers = [_validity(counts > 0) if without else None, pa.py_buffer(list_offsets)]
        return pa.Array.from_buffers(COLUMN_TYPES["headers"], rows, buffers, without, children=[structs])

    def _all_null(self, name: str, rows: int) -> pa.Array:
        if len(self._nulls[name]) < rows:
            self._nulls[name] = pa.nulls(rows, COLUMN_TYPES[name])
        return self._nulls[name].slice(0, rows)

    def _constant(self, name: str, variant: int, value: object, rows: int) -> pa.Array:
        kept = self._constants.get((name, variant))
        if kept is None or len(kept) < rows:
            kept = self._constants[name, variant] = pa.repeat(pa.scalar(value, COLUMN_TYPES[name]), rows)
        return kept.slice(0, rows)

    def _name(self, offset: int) -> str:
        return f"topic {self._topic!r}, partition {self._partition}, batch at offset {offset}: "

    def _explain(self, view: memoryview, position: int, offset: int) -> NoReturn:
        """The kernel or the CRC refused this batch; the plain twin says why."""
        try:
            batches.check(view, position)
        except StorageError as error:
            raise type(error)(self._name(offset) + str(error)) from error
        raise CorruptBatch(self._name(offset) + f"base offset {batches.read_prefix(view, position)[0]} cannot be")

    def _explain_records(self, view: memoryview, batch: np.ndarray, status: int) -> NoReturn:
        name = self._name(int(batch[kernels.BASE_OFFSET]))
        if status == kernels.TIMESTAMP_RANGE:
            raise InvalidBatch(name + "a timestamp does not fit into microseconds")
        try:
            records.decode_batch(view, int(batch[kernels.POSITION]))
        except StorageError as error:
            raise type(error)(name + str(error)) from error
        raise InvalidBatch(name + "its records are malformed")


def _address(data: np.ndarray) -> int:
    address: int = data.__array_interface__["data"][0]
    return address


def _gather(
    arrow_type: pa.DataType, rows: int, address: np.ndarray, length: np.ndarray, size_bytes: int, nulls: int
) -> pa.Array:
    offsets, data = pa.allocate_buffer(4 * (rows + 1)), pa.allocate_buffer(size_bytes)
    kernels.gather(address, length, rows, np.frombuffer(offsets, np.int32), data.address)
    validity = _validity(length[:rows] >= 0) if nulls else None
    return pa.Array.from_buffers(arrow_type, rows, [validity, offsets, data], nulls)


def _validity(valid: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _valid_utf8(keys: pa.Array) -> pa.Array:
    """Kafka does not check that header keys are UTF-8; Arrow's strings must be."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.cast(pa.binary()).to_pylist()], pa.string())
    return keys
