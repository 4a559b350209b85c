"""What a task of a sink does: Arrow batches, split by topic and partition, encoded and sent.

Python works per Arrow batch, topic and record batch, never per row.
"""

from collections.abc import Callable, Iterator
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.producer import BatchProducer
from pylog.connector.columnar.encode import EncodedBatch, RowEncoder
from pylog.connector.columnar.partitioner import Sticky, partition_ids
from pylog.connector.spark.errors import NullTopic, SchemaError
from pylog.connector.spark.options import SinkOptions
from pylog.storage import codecs
from pylog.storage.batch import HEADER_BYTES

P = ParamSpec("P")
T = TypeVar("T")

_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """How many rows were written and acknowledged."""
    cluster = Cluster.of(options.client)
    batch_size_bytes = max(options.client.batch_size, HEADER_BYTES + 1)  # less than that: a batch for each row
    codec = codecs.CODEC_BY_NAME[options.client.compression_type]
    encoder = RowEncoder(codec, options.client.compression_level, batch_size_bytes)
    stickies: dict[str, Sticky] = {}
    rows = 0
    with BatchProducer(cluster) as producer:
        for batch in batches:
            for topic, part in _by_topic(_plain(batch), options.topic):
                sticky = stickies.get(topic) or stickies.setdefault(topic, Sticky(batch_size_bytes))
                ids = _partition_ids(cluster, topic, part, sticky)
                for encoded in _in_turns(_refusing(topic, encoder.encode, part, ids)):
                    producer.send(topic, encoded.partition, encoded.records, encoded.record_count)
            rows += batch.num_rows
    return rows


def _in_turns(encoded: list[EncodedBatch]) -> Iterator[EncodedBatch]:
    """A batch of each partition, then the next of each: a request takes only one of a partition, and few large
    requests cost less than many small ones. The order within a partition stays."""
    by_partition = [list(group) for _, group in groupby(encoded, key=attrgetter("partition"))]
    for turn in zip_longest(*by_partition):
        yield from filter(None, turn)


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
    if len(topics) > 1:
        numbers = numbered.indices.to_numpy()
        rows = rows.take(pa.array(np.argsort(numbers, kind="stable")))
        counts = np.bincount(numbers, minlength=len(topics)).tolist()
    else:
        counts = [rows.num_rows]
    position = 0
    for name, count in zip(topics, counts, strict=True):
        yield name, rows.slice(position, count)
        position += count


def _partition_ids(cluster: Cluster, topic: str, rows: pa.RecordBatch, sticky: Sticky) -> np.ndarray:
    key, explicit = (rows[name] if name in rows.schema.names else None for name in ("key", "partition"))
    partition_count = len(cluster.partitions(topic, create=True))
    if explicit is not None and (highest := pc.max(explicit).as_py()) is not None and highest >= partition_count:
        cluster.expire(topic)  # partitions may have been added since
        partition_count = len(cluster.partitions(topic))
    return _refusing(topic, partition_ids, key, explicit, partition_count, sticky, rows["value"])


def _refusing(topic: str, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What cannot be written is refused with the name of its topic."""
    try:
        return make(*arguments, **named)
    except (ValueError, TypeError) as error:
        raise SchemaError(f"rows for the topic {topic!r} cannot be written: {error}") from error
