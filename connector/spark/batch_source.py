"""`spark.read`: the offsets are settled when the query is planned, on the driver; tasks read one range each."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StringType, StructType

from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.client.errors import ConfigError
from pylog.connector.spark.contact import contact, look_up
from pylog.connector.spark.data_loss import Loss, beyond, expired, report
from pylog.connector.spark.offsets import AtTime, Offsets, resolve
from pylog.connector.spark.options import Position, SourceOptions
from pylog.connector.spark.plan import ranges, split
from pylog.connector.spark.pushdown import Narrowing, narrowed
from pylog.connector.spark.read import RangePartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

# What a task reads at most if nothing is said about tasks: half a second's work, and a topic with fewer partitions
# than Spark has cores keeps more of them busy. It grows where there would be too many tasks.
TASK_OFFSETS_MAX = 1_000_000
TASKS_MAX = 1_000


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing = Narrowing()  # what filters leave to be read
        self._topic_ids: dict[str, UUID] = {}  # for which the offsets were looked up

    def partitions(self) -> list[InputPartition]:
        options = self._options
        contact(options.client, options.contact_timeout_ms)
        start, end = look_up(self._settle, options.look_up_attempts, options.look_up_pause_ms)
        whole = ranges(start, end)
        records_max = options.records_per_partition_max
        if records_max is None and options.partitions_min is None:
            records_max = max(TASK_OFFSETS_MAX, sum(one.size for one in whole) // TASKS_MAX)
        tasks = split(whole, options.partitions_min, records_max)
        return [RangePartition(task, self._topic_ids[task.topic]) for task in tasks]

    def _settle(self) -> tuple[Offsets, Offsets]:
        cluster = Cluster.of(self._options.client)
        places = self._options.subscription.partitions(cluster)
        self._topic_ids = {topic: cluster.topic_id(topic) for topic in {topic for topic, _ in places}}
        starting, ending = self._options.starting, self._options.ending
        try:
            start = resolve(cluster, starting.option, starting.wanted, places)
            end = resolve(cluster, ending.option, ending.wanted, places)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if isinstance(starting.wanted, dict) or isinstance(ending.wanted, dict):
            self._keep_within_log(cluster, start, end)
        for place, offset in start.items():
            topic, partition = place
            if offset > end[place] and (_is_given(ending, place) or isinstance(ending.wanted, AtTime)):
                what = f"{starting.option} ({offset}) is behind {ending.option} ({end[place]})"
                raise ConfigError(f"{topic}-{partition}: {what}")
        return self._narrowing.apply(cluster, start, end)

    def _keep_within_log(self, cluster: Cluster, start: Offsets, end: Offsets) -> None:
        """Offsets that a user gave may be gone, or not there yet."""
        earliest, latest = cluster.earliest(start), cluster.latest(start)
        losses: list[Loss] = []
        for place in sorted(start):
            lowest, highest = earliest[place], max(latest[place], earliest[place])
            if start[place] < lowest and _is_given(self._options.starting, place):
                losses.append(expired(*place, start[place], lowest, end[place]))
            for position, offsets in ((self._options.starting, start), (self._options.ending, end)):
                if offsets[place] > highest and _is_given(position, place):
                    losses.append(beyond(*place, offsets[place], highest, position.option))
                offsets[place] = min(max(offsets[place], lowest), highest)
        report(self._options.fail_on_data_loss, losses)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._schema, partition)


def _is_given(position: Position, place: TopicPartition) -> bool:
    """Whether a user has named the very offset. Earliest and latest may have moved on since they were looked up."""
    return isinstance(position.wanted, dict) and position.wanted[place] >= 0


class FilteringBatchReader(BatchReader):
    """For a session that pushes filters down; in others Spark refuses a reader that takes them."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        if "topic" in self._schema.names and self._schema["topic"].dataType != StringType():
            return filters  # a collation of the user's: equal is not the same then
        self._narrowing, rest = narrowed(filters)
        return rest
