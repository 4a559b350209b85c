"""`spark.readStream`: which offsets each micro-batch reads, and the group's offsets once it is done.

One reader lives on the driver for a whole query and plans; others, in tasks, only `read`. Spark's checkpoint is the
truth; what is committed to `kafka.group.id` follows it, for lag to be seen, and is never read back.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pylog.connector.client.cluster import LATEST, Cluster, TopicPartition
from pylog.connector.client.errors import ClientError, ConfigError, UnknownTopic
from pylog.connector.client.waiter import wait_for_records
from pylog.connector.spark.contact import contact
from pylog.connector.spark.offsets import AtGroup, AtTime, JsonOffsets, Offsets, from_json, resolve, text, to_json
from pylog.connector.spark.options import SourceOptions
from pylog.connector.spark.plan import limited, ranges
from pylog.connector.spark.read import RangePartition, read_partition, report_loss

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000  # a group's offsets are not worth holding up a query
IDLE_WAIT_MS_MAX = 200  # how long an idle trigger waits for records; also how long a stop may have to wait
_BACKWARDS_ATTEMPTS = 4  # a new leader may answer with an older end for a moment
_BACKWARDS_PAUSE_MS = 250


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._initial: Offsets | None = None  # set when this run began a new query
        self._pinned = False  # whether the first batch of a new query has its end in the log
        self._latest: Offsets = {}  # as last heard
        self._target: Offsets | None = None  # where AvailableNow ends
        self._committed: Offsets = {}
        self._idle_wait_ms = 0

    @property
    def _cluster(self) -> Cluster:
        return Cluster.of(self._options.client)

    # What Spark asks, in the order of a trigger

    def initialOffset(self) -> JsonOffsets:
        """Asked twice for the first batch: both answers must agree, or records between them would be lost."""
        if self._initial is None:
            contact(self._options.client, self._options.contact_timeout_ms)
            places = self._options.subscription.partitions(self._cluster)
            option, wanted = self._options.starting
            try:
                self._initial = resolve(self._cluster, option, wanted, places)
            except ValueError as error:
                raise ConfigError(str(error)) from None
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._cluster.latest(self._places({}))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> JsonOffsets:
        """The end of the next batch; `start` where there is nothing to read.

        `start` is the end of all that is done, so this is also where the group's offsets are committed: `commit`
        is not called for the last batch."""
        begin = from_json(start)
        if begin == self._initial and not self._pinned:
            self._pinned = True
            if self._starts_at_latest():
                # The first batch is empty, and its end is then in the checkpoint: were it replayed after a crash,
                # `latest` would be another offset, and the records in between lost.
                return to_json(begin)
        else:
            self._commit_group(begin)
        end = self._next_end(begin, limit)
        if end != begin:
            self._idle_wait_ms = 0
        elif self._target is None:
            end = self._wait_for_more(begin, limit)
        return to_json(end)

    def reportLatestOffset(self) -> JsonOffsets | None:
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = from_json(start), from_json(end)
        if any(until[place] > self._latest.get(place, -1) for place in until):  # a batch of an earlier run
            self._latest = self._latest_of(begin)
            self._check_end(until)
        if begin == self._initial:  # a first batch, replayed: its end was settled before this start
            begin = {place: min(begin[place], until[place]) for place in begin.keys() & until.keys()}
        return [RangePartition(found) for found in ranges(self._begin(begin, until), until)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit_group(from_json(end))

    # Where a batch ends

    def _starts_at_latest(self) -> bool:
        match self._options.starting.wanted:
            case AtGroup():
                return True  # the group may have moved on
            case AtTime(none_is_latest=none_is_latest):
                return none_is_latest
            case dict() as offsets:
                return LATEST in offsets.values()
            case wanted:
                return wanted == LATEST

    def _next_end(self, begin: Offsets, limit: ReadLimit) -> Offsets:
        self._latest = self._latest_of(begin)
        until = self._latest
        if self._target is not None:
            until = {
                # a query that starts at `latest` begins behind its target if records came in between
                place: min(offset, max(self._target[place], begin.get(place, 0)))
                for place, offset in until.items()
                if place in self._target
            }
        if isinstance(limit, ReadMaxRows):
            return limited(self._begin(begin, until), until, limit.max_rows)
        if isinstance(limit, ReadAllAvailable):
            self._begin(begin, until)
            return dict(until)
        raise NotImplementedError(f"a read limit of {type(limit).__name__}")

    def _wait_for_more(self, begin: Offsets, limit: ReadLimit) -> Offsets:
        """Spark asks an idle source again at once: waiting here, longer each time, spares the broker."""
        if wait_for_records(self._cluster, begin, self._idle_wait_ms):
            begin = self._next_end(begin, limit)
            self._idle_wait_ms = 0
        else:
            self._idle_wait_ms = min(2 * self._idle_wait_ms + 10, IDLE_WAIT_MS_MAX)
        return begin

    def _latest_of(self, begin: Offsets) -> Offsets:
        """The ends of all partitions. Where one lies before what was read already, it is asked for again."""
        attempts = 0
        while True:
            latest = self._cluster.latest(self._places(begin))
            attempts += 1
            if attempts == _BACKWARDS_ATTEMPTS or all(latest[place] >= begin.get(place, 0) for place in latest):
                return latest
            time.sleep(_BACKWARDS_PAUSE_MS / 1000)
            self._options.subscription.expire(self._cluster)

    def _places(self, begin: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        def missing(error: UnknownTopic) -> None:
            if self._options.fail_on_data_loss and not any(error.topic == known for known, _ in begin):
                raise error
            report_loss(self._options.fail_on_data_loss, str(error))

        return self._options.subscription.partitions(self._cluster, missing)

    # Where it begins

    def _begin(self, begin: Offsets, until: Offsets) -> Offsets:
        """`begin` for exactly the partitions of `until`: new ones at their earliest, gone ones reported."""
        if gone := begin.keys() - until.keys():
            self._report(f"{text(gone)}: no longer there")
        shrunk = {place for place in begin.keys() & until.keys() if until[place] < begin[place]}
        for topic, partition in sorted(shrunk):
            place = topic, partition
            self._report(f"{topic}-{partition} was read up to offset {begin[place]}, and now ends at {until[place]}")
        new = until.keys() - begin.keys()
        earliest = self._cluster.earliest(new | shrunk) if new or shrunk else {}
        for topic, partition in sorted(new):
            if earliest[topic, partition] > 0:
                self._report(f"{topic}-{partition} is new, and starts at offset {earliest[topic, partition]}, not 0")
        return {place: earliest[place] if place in earliest else begin[place] for place in until}

    def _check_end(self, until: Offsets) -> None:
        """Of a batch whose end an earlier run has settled."""
        for (topic, partition), end in until.items():
            latest = self._latest.get((topic, partition), -1)
            if end > latest:
                self._report(f"{topic}-{partition} was to be read up to offset {end}, and ends at {latest}")
                until[topic, partition] = max(latest, 0)

    def _report(self, what: str) -> None:
        report_loss(self._options.fail_on_data_loss, what)

    # The group

    def _commit_group(self, done: Offsets) -> None:
        """A failure is a warning: the checkpoint has the offsets, and the next commit brings them along."""
        group = self._options.client.group_id
        changed = {place: offset for place, offset in done.items() if self._committed.get(place) != offset}
        if not group or not changed:
            return
        timeout_ms = min(COMMIT_TIMEOUT_MS, self._options.client.default_api_timeout_ms)
        try:
            Cluster.of(replace(self._options.client, default_api_timeout_ms=timeout_ms)).commit_offsets(group, changed)
        except ClientError as error:
            _log.warning("the offsets of the group %r were not committed: %s", group, error)
        else:
            self._committed.update(changed)
