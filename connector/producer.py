"""`pylog.Producer`: records one by one, or whole tables at once.

A table's columns become record batches in compiled kernels, without Python at any row: the road of Spark's sink.
"""

import time
from collections.abc import Iterator
from functools import cached_property

import pyarrow as pa

from pylog.connector.client.config import ROUND_ROBIN
from pylog.connector.client.delivery import OnTable, TableFuture
from pylog.connector.client.errors import ClientError
from pylog.connector.client.producer import RecordProducer
from pylog.connector.columnar.encode import RowEncoder
from pylog.connector.columnar.partitioner import RowPartitioner, highest_named
from pylog.storage import codecs
from pylog.storage.batch import HEADER_BYTES

SLICES_IN_BUFFER = 4  # parts of a table are encoded at once, of which so many fit into buffer.memory

_COLUMNS = ("key", "value", "headers", "partition", "timestamp")


class Producer(RecordProducer):
    __doc__ = RecordProducer.__doc__

    def send_table(
        self, topic: str, table: pa.Table | pa.RecordBatch, *, on_delivery: OnTable | None = None
    ) -> TableFuture:
        """Columns `value` and, if there, `key` (both binary or string), `headers` (a list of structs of key and value),
        `partition` (an integer) and `timestamp` (a timestamp, or milliseconds since 1970); others are left alone. Rows
        keep their order within a partition.

        Returns when all rows have their places in batches, and waits meanwhile for room in `buffer.memory`, for
        `max.block.ms` each time. A batch that is not full waits `linger.ms`, as those of `send` do, but is not filled
        up. ValueError or TypeError for a row that cannot be written: rows before it may be."""
        future = TableFuture(topic, table.num_rows, on_delivery)
        try:
            for part in _slices(_written(table), self._config.buffer_memory // SLICES_IN_BUFFER):
                self._send_slice(topic, part, future)
        except BaseException as error:
            future.complete(error if isinstance(error, ClientError) else ClientError(f"not sent: {error}"))
            raise
        future.complete()
        return future

    def _send_slice(self, topic: str, rows: pa.Table | pa.RecordBatch, future: TableFuture) -> None:
        count = self._partition_count(topic, time.monotonic(), beyond=highest_named(rows))
        self._add(topic, self._encoder.encode(rows, self._partitioner(topic).partition_ids(rows, count)), future)

    @cached_property
    def _encoder(self) -> RowEncoder:
        config = self._config
        codec = codecs.CODEC_BY_NAME[config.compression_type]
        # Less than a header: a batch for each row.
        batch_size_bytes = max(min(config.batch_size, config.max_request_size), HEADER_BYTES + 1)
        return RowEncoder(codec, config.compression_level, batch_size_bytes, with_crc=False)

    @cached_property
    def _row_partitioners(self) -> dict[str, RowPartitioner]:
        return {}

    def _partitioner(self, topic: str) -> RowPartitioner:
        found = self._row_partitioners.get(topic)
        if found is None:
            config = self._config
            made = RowPartitioner(
                min(config.batch_size, config.max_request_size),
                round_robin=config.partitioner_class == ROUND_ROBIN,
                ignore_keys=config.partitioner_ignore_keys,
            )
            found = self._row_partitioners.setdefault(topic, made)
        return found


def _written(table: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """Without the columns that are left alone: they would count where the table is cut."""
    names = table.schema.names
    if "value" not in names:
        raise ValueError(f"there is no column 'value' among {names}")
    wanted = [number for number, name in enumerate(names) if name in _COLUMNS]
    return table if len(wanted) == len(names) else table.select(wanted)


def _slices(table: pa.Table | pa.RecordBatch, bytes_max: int) -> Iterator[pa.Table | pa.RecordBatch]:
    """Parts of so many bytes at most, or of one row."""
    if table.nbytes <= bytes_max or table.num_rows <= 1:
        if table.num_rows:
            yield table
        return
    middle = table.num_rows // 2
    yield from _slices(table.slice(0, middle), bytes_max)
    yield from _slices(table.slice(middle), bytes_max)
