"""The records of `__consumer_offsets` to Arrow columns: the commits of groups, a row each.

Other records of that topic (of groups and their members) are left out. A commit that was taken back, because it
expired or was deleted, is a row without offset, metadata and time. numpy reads all rows of an Arrow batch at once; a
record that it cannot read is handed to the plain decoder of the protocol, which says what is wrong with it.
"""

from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import pyarrow as pa

from pylog.broker_lite.protocol import consumer_offsets
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.connector.columnar.decode import Buffer, RowDecoder, arrow_schema
from pylog.storage.errors import CorruptBatch

COLUMN_TYPES: dict[str, pa.DataType] = {
    "group": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "metadata": pa.string(),
    "commit_timestamp": pa.timestamp("us", tz="UTC"),
    "log_partition": pa.int32(),  # where the commit itself stands: the last one of a group and partition holds
    "log_offset": pa.int64(),
}
_COMMIT_KEY_VERSION_MAX = 1
_VALUE_VERSION_MAX = 4
_VALUE_FLEXIBLE_SINCE = 4
_EPOCH_SINCE = 3
_VARINT_BYTES_MAX = 3  # of the length of a string, which is at most 32767


class CommitDecoder:
    """In place of a RowDecoder."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema) -> None:
        for field in schema:
            if COLUMN_TYPES.get(field.name) != field.type:
                raise ValueError(f"there is no column {field.name!r} of type {field.type}")
        self._name = f"{topic}-{partition}"
        self._partition = partition
        self._schema = schema
        self._rows = RowDecoder(topic, partition, arrow_schema(["key", "value", "offset"]))

    def decode(
        self, fetched: Buffer, offset_start: int, offset_end: int, aborted: Sequence[tuple[int, int]] = ()
    ) -> tuple[Iterator[pa.RecordBatch], int]:
        rows, next_offset = self._rows.decode(fetched, offset_start, offset_end, aborted)
        return map(self._commits, rows), next_offset

    def _commits(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        log_offsets = rows.column(2).to_numpy()
        keys, values = _Records(rows.column(0)), _Records(rows.column(1))
        versions, readable = keys.versions()
        chosen = np.flatnonzero(readable & (versions >= 0) & (versions <= _COMMIT_KEY_VERSION_MAX))
        there = values.is_there[chosen]
        columns, bad = _read_keys(keys, chosen)
        value_columns, bad_values = _read_values(values, chosen, there)
        if (wrong := np.flatnonzero(bad | bad_values)).size:
            self._refuse(rows, chosen[wrong])
        columns |= value_columns
        columns["log_partition"] = pa.array(np.full(len(chosen), self._partition, np.int32))
        columns["log_offset"] = pa.array(log_offsets[chosen])
        try:
            for name in ("group", "topic", "metadata"):
                columns[name].validate(full=True)
        except pa.ArrowInvalid:  # a name is no UTF-8
            self._refuse(rows, chosen)
        return pa.RecordBatch.from_arrays([columns[field.name] for field in self._schema], schema=self._schema)

    def _refuse(self, rows: pa.RecordBatch, suspects: np.ndarray) -> NoReturn:
        for row in suspects.tolist():
            key, value, offset = (column[row].as_py() for column in rows.columns)
            try:
                consumer_offsets.decode_key(key)
                if value is not None:
                    consumer_offsets.decode_offset_value(value)
            except MalformedFrame as error:
                raise CorruptBatch(f"{self._name} at offset {offset}: it is no commit of a group: {error}") from None
        raise AssertionError(f"{self._name}: two decoders do not agree on {rows.slice(suspects[0], 1)}")


class _Records:
    """The binary values of a column, as places in one buffer."""

    def __init__(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        edges = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        self.start, self.end = edges[:-1], edges[1:]
        self.bytes = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        self.is_there = column.is_valid().to_numpy(zero_copy_only=False)

    def versions(self) -> tuple[np.ndarray, np.ndarray]:
        """(the first two bytes of each, whether it has them)."""
        return self.number(self.start, 2), self.is_there & (self.end - self.start >= 2)

    def number(self, position: np.ndarray, size: int) -> np.ndarray:
        """Signed, most significant byte first. Of what lies behind the buffer anything: its end is checked later."""
        found = self.byte(position).astype(np.int8).astype(np.int64)
        for more in range(1, size):
            found = found << 8 | self.byte(position + more)
        return found

    def byte(self, position: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.bytes[np.clip(position, 0, len(self.bytes) - 1)].astype(np.int64)
        return found

    def text(self, position: np.ndarray, length: np.ndarray, is_there: np.ndarray | None = None) -> pa.Array:
        """Strings of bytes that lie anywhere in the buffer, one behind the other."""
        length = np.where(position + length <= len(self.bytes), np.maximum(length, 0), 0)  # else it is bad anyhow
        edges = np.zeros(len(length) + 1, np.int64)
        np.cumsum(length, out=edges[1:])
        wanted = np.arange(edges[-1]) + np.repeat(position - edges[:-1], length)
        bitmap = None if is_there is None else pa.py_buffer(np.packbits(is_there, bitorder="little"))
        buffers = [bitmap, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(self.bytes[wanted])]
        return pa.Array.from_buffers(pa.string(), len(length), buffers)


def _read_keys(keys: _Records, chosen: np.ndarray) -> tuple[dict[str, pa.Array], np.ndarray]:
    """(columns, which rows are no good)."""
    position, end = keys.start[chosen] + 2, keys.end[chosen]
    columns: dict[str, pa.Array] = {}
    bad = np.zeros(len(chosen), bool)
    for name in ("group", "topic"):
        length = keys.number(position, 2)
        bad |= (length < 0) | (position + 2 + length > end)
        columns[name] = keys.text(position + 2, np.where(bad, 0, length))
        position = position + 2 + np.where(bad, 0, length)
    columns["partition"] = pa.array(keys.number(position, 4).astype(np.int32))
    return columns, bad | (position + 4 != end)


def _read_values(values: _Records, chosen: np.ndarray, there: np.ndarray) -> tuple[dict[str, pa.Array], np.ndarray]:
    position, end = values.start[chosen], values.end[chosen]
    version = values.number(position, 2)
    offset = values.number(position + 2, 8)
    position = position + 10 + np.where(version >= _EPOCH_SINCE, 4, 0)
    plain_length = values.number(position, 2)
    compact_length, compact_bytes = _varint(values, position)
    flexible = version >= _VALUE_FLEXIBLE_SINCE
    length = np.where(flexible, compact_length - 1, plain_length)
    position = position + np.where(flexible, compact_bytes, 2)
    bad = (version < 0) | (version > _VALUE_VERSION_MAX) | (length < 0) | (position + length + 8 > end)
    length = np.where(bad | ~there, 0, length)
    timestamp_ms = values.number(position + length, 8)
    columns = {
        "offset": pa.array(offset, pa.int64(), mask=~there),
        "metadata": values.text(position, length, there),
        "commit_timestamp": pa.array(timestamp_ms * 1000, COLUMN_TYPES["commit_timestamp"], mask=~there),
    }
    return columns, bad & there


def _varint(values: _Records, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(unsigned numbers, how many bytes each takes)."""
    found, size = np.zeros_like(position), np.zeros_like(position)
    going_on = np.ones(len(position), bool)
    for number in range(_VARINT_BYTES_MAX):
        byte = values.byte(position + number)
        found |= np.where(going_on, (byte & 0x7F) << 7 * number, 0)
        size += going_on
        going_on = going_on & (byte >= 0x80)
    return found, size
