"""What a task does: the records of one offset range, fetched, decoded and handed to Spark as Arrow batches.

While Spark takes one Arrow batch, the next fetch is on its way. What a task holds does not grow with its range: one
fetch, what is unfolded of it together, and an Arrow batch or two. docs/source.md states the bound, and a test holds it.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.errors import ClientError, OffsetOutOfRange, RangeNotReached, UnknownPartition, UnknownTopic
from pylog.connector.client.fetcher import fetch_range
from pylog.connector.spark.data_loss import TASK_ERRORS, met_by_task, report
from pylog.connector.spark.errors import RecordsLate
from pylog.connector.spark.options import SourceOptions
from pylog.connector.spark.plan import OffsetRange
from pylog.connector.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.connector.columnar.commits import CommitDecoder
    from pylog.connector.columnar.decode import RowDecoder


class RangePartition(InputPartition):
    """One Spark partition: one offset range of the topic with this id, if it is known. The base class's `value` is None
    when a batch read has none at all."""

    def __init__(self, offset_range: OffsetRange, topic_id: UUID | None = None) -> None:
        super().__init__(offset_range)
        self.topic_id = topic_id


def read_partition(options: SourceOptions, schema: StructType, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    if partition.value is not None:  # None is Spark's way to say that a batch read has no partitions
        assert isinstance(partition, RangePartition)
        yield from _read(options, schema, partition.value, partition.topic_id)
        settle("read")


def _read(
    options: SourceOptions, schema: StructType, wanted: OffsetRange, topic_id: UUID | None
) -> "Iterator[pa.RecordBatch]":
    cluster = Cluster.of(options.client)
    decoder = _decoder(options, schema, wanted)
    position = wanted.start
    while position < wanted.end:
        try:
            wait_ms = options.poll_timeout_ms
            place = wanted.topic, wanted.partition
            for fetched in fetch_range(cluster, *place, position, wanted.end, wait_ms, topic_id):
                yield from decoder.decode(fetched.records, position, wanted.end, fetched.aborted)[0]
                position = fetched.next_offset
            return
        except TASK_ERRORS as met:
            error = _proven(options, cluster, wanted, met) if isinstance(met, RangeNotReached) else met
            loss = met_by_task(error, wanted.topic, wanted.partition, position, wanted.end)
            report(options.fail_on_data_loss, [loss])
            if not isinstance(error, OffsetOutOfRange) or error.log_start_offset <= position:
                return  # nothing is left of the range
            position = error.log_start_offset


def _proven(options: SourceOptions, cluster: Cluster, wanted: OffsetRange, error: RangeNotReached) -> ClientError:
    """The error, if records are missing; RecordsLate if the log has them. Its end is asked for with the patience of the
    planner: a new leader may answer with an older one for a moment."""
    topic, partition, offset, _, _, waited_ms = error.args
    place = wanted.topic, wanted.partition
    for attempt in range(options.look_up_attempts):
        if attempt:
            time.sleep(options.look_up_pause_ms / 1000)
            cluster.expire(topic)
        try:
            if cluster.latest([place])[place] >= wanted.end:
                raise RecordsLate(topic, partition, offset, waited_ms) from error
        except (UnknownTopic, UnknownPartition) as gone:
            return gone
    return error


def _decoder(options: SourceOptions, schema: StructType, wanted: OffsetRange) -> "RowDecoder | CommitDecoder":
    """These load numba: in tasks only, not on the driver."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    if options.decode == "offsets":
        from pylog.connector.columnar.commits import CommitDecoder

        return CommitDecoder(wanted.topic, wanted.partition, arrow)
    from pylog.connector.columnar.decode import RowDecoder

    return RowDecoder(wanted.topic, wanted.partition, arrow)
