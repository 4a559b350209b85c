"""What a task of a sink does: Arrow batches, split by topic, given to the producer of this process.

Python works per Arrow batch, topic and record batch, never per row.
"""

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pylog.connector.client.config import ClientConfig
from pylog.connector.client.delivery import TableFuture
from pylog.connector.producer import Producer
from pylog.connector.spark.errors import NullTopic, SchemaError
from pylog.connector.spark.options import SinkOptions

_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
_producers: dict[tuple[int, ClientConfig], Producer] = {}  # by process, lest a forked one takes its parent's


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """How many rows were written and acknowledged."""
    producer = _producer(options.client)
    rows, sent = 0, list[TableFuture]()
    try:
        for batch in batches:
            sent += _send_all(producer, batch, options.topic)
            rows += batch.num_rows
            sent = [table for table in sent if not _is_written(table)]
        producer.flush()
        for table in sent:
            table.result(0)
    except BaseException:
        _forget(options.client)  # what is still in it belongs to a task that failed
        raise
    return rows


def _producer(config: ClientConfig) -> Producer:
    """Kept between tasks: connections, producer id and leaders are then known."""
    key = os.getpid(), config
    return _producers.get(key) or _producers.setdefault(key, Producer(config))


def _forget(config: ClientConfig) -> None:
    producer = _producers.pop((os.getpid(), config), None)
    if producer is not None:
        producer.close(0)


def _send_all(producer: Producer, batch: pa.RecordBatch, topic: str | None) -> list[TableFuture]:
    """No copy of its rows is held beyond this: the next batch may be as large."""
    return [_send(producer, name, rows) for name, rows in _by_topic(_plain(batch), topic)]


def _send(producer: Producer, topic: str, rows: pa.RecordBatch) -> TableFuture:
    try:
        return producer.send_table(topic, rows)
    except (ValueError, TypeError) as error:
        raise SchemaError(f"rows for the topic {topic!r} cannot be written: {error}") from error


def _is_written(table: TableFuture) -> bool:
    """Raises what kept it from being so: a task does not go on behind rows that failed."""
    if table.error is not None:
        raise table.error
    return table.done()


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are written, as the encoder takes them; large types and time zones it takes as they are."""
    names = [name for name in _COLUMNS if name in batch.schema.names]
    columns = [batch[name] for name in names]
    columns = [column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in columns]
    return pa.RecordBatch.from_arrays(columns, names)


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order."""
    if not rows.num_rows:
        return
    if topic is not None:
        yield topic, rows
        return
    column = rows["topic"]
    if column.null_count:
        raise NullTopic
    numbered = column.dictionary_encode()
    topics = numbered.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], rows
        return
    numbers = numbered.indices.to_numpy()
    order = pa.array(np.argsort(numbers, kind="stable"))
    position = 0
    for name, count in zip(topics, np.bincount(numbers, minlength=len(topics)).tolist(), strict=True):
        yield name, rows.take(order.slice(position, count))  # not all at once: that would be a second batch
        position += count
