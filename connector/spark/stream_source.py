"""`spark.readStream`: which offsets each micro-batch reads, and the group's offsets once it is done.

One reader lives on the driver for a whole query and plans; others, in tasks, only `read`. Spark's checkpoint is the
truth: whatever a batch was planned by is in the offset that ends it, or can be found out again.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.client.errors import ConfigError, UnknownPartition, UnknownTopic
from pylog.connector.client.sizes import sample_sizes
from pylog.connector.client.waiter import wait_for_records
from pylog.connector.spark.admission import TriggerDelay, byte_limited
from pylog.connector.spark.checkpoint import Mark, id_text
from pylog.connector.spark.contact import contact, look_up
from pylog.connector.spark.data_loss import Loss, deleted, dropped, recreated, report, truncated
from pylog.connector.spark.groups import GroupCommits
from pylog.connector.spark.offsets import JsonOffsets, Offsets, resolve, to_json
from pylog.connector.spark.options import SourceOptions
from pylog.connector.spark.plan import OffsetRange, limited, ranges, split
from pylog.connector.spark.read import RangePartition, read_partition
from pylog.connector.spark.resume import starts, without_start

if TYPE_CHECKING:
    import pyarrow as pa

IDLE_WAIT_MS_MAX = 200  # how long an idle trigger waits for records; also how long a stop may have to wait
_log = logging.getLogger(__name__)
T = TypeVar("T")
_GONE = (UnknownTopic, UnknownPartition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._initial: Mark | None = None  # where a new query starts, if this run was asked
        self._no_start: ConfigError | UnknownTopic | None = None  # why there is no such place
        self._is_in_touch = False
        self._query: str | None = None
        self._latest: Offsets = {}  # as last heard
        self._ids: dict[str, str] = {}  # of the topics of which it was heard
        self._earliest: Offsets = {}
        self._earliest_known_at = float("-inf")
        self._target: Offsets | None = None  # where AvailableNow ends
        self._groups = GroupCommits(options.client)
        self._delay: TriggerDelay | None = None
        if options.offsets_per_trigger_min is not None:
            self._delay = TriggerDelay(options.offsets_per_trigger_min, options.trigger_delay_ms_max)
        self._idle_wait_ms = 0
        self._reported: set[Loss] = set()
        self._absent: set[str] = set()  # topics of which it was said that they are not there

    @property
    def _cluster(self) -> Cluster:
        return Cluster.of(self._options.client)

    # What Spark asks, in the order of a trigger

    def initialOffset(self) -> dict[str, Any]:
        """Asked twice for the first batch: both answers must agree, or records between them would be lost.

        Also asked where a first batch is run again, though its end says where it began. So it is no error yet if
        `startingOffsets` does not fit what the cluster holds: `latestOffset` says so, which is not asked then."""
        if self._initial is None:
            self._get_in_touch()
            try:
                self._initial = look_up(
                    self._start_of_query, self._options.look_up_attempts, self._options.look_up_pause_ms
                )
            except (ConfigError, UnknownTopic) as error:
                self._no_start = error
                self._initial = Mark({}, {}, self._name_of_query(None))
        return self._initial.to_json()

    def _get_in_touch(self) -> None:
        """Whether there is a cluster at all is known soon, and looked for once."""
        if not self._is_in_touch:
            contact(self._options.client, self._options.contact_timeout_ms)
            self._is_in_touch = True

    def _start_of_query(self) -> Mark:
        places = self._options.subscription.partitions(self._cluster)
        ids = self._topic_ids(places)
        option, wanted = self._options.starting
        try:
            offsets = resolve(self._cluster, option, wanted, places)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return Mark(offsets, ids, self._name_of_query(None))

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the limits that are set: Spark knows no two at once, and says ReadAllAvailable for Trigger.Once."""
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        def target() -> Offsets:
            return self._cluster.latest(self._options.subscription.partitions(self._cluster, lambda missing: None))

        self._get_in_touch()
        self._target = self._while_topics_go(target)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` where there is nothing to read.

        `start` is the end of all that is done, so this is also where the group's offsets are committed: `commit`
        is not called for the last batch."""
        begin = Mark.from_json(start)
        if begin == self._initial:
            if self._no_start is not None:
                raise self._no_start
            end = self._while_topics_go(lambda: self._next_end(begin, limit))
            remade = begin.remade(end.topic_ids)
            first = {place: offset for place, offset in begin.offsets.items() if place[0] not in remade}
            return end._replace(first=first).to_json()
        try:
            end = self._while_topics_go(lambda: self._next_end(begin, limit))
        finally:
            self._commit_group(begin)
        if _same(begin, end) and self._target is None and self._wait(begin):
            end = self._while_topics_go(lambda: self._next_end(begin, limit))
        if _same(begin, end):
            return start
        self._idle_wait_ms = 0
        return end.to_json()

    def reportLatestOffset(self) -> JsonOffsets | None:
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        begin, until = Mark.from_json(start), Mark.from_json(end)
        is_first = begin == self._initial
        if until.first is not None:
            begin = Mark(until.first, until.topic_ids)
        elif is_first and self._no_start is not None:
            raise self._no_start
        elif is_first:  # replayed, from an older version: its end was settled before this start
            clamped = {place: min(offset, until.offsets.get(place, offset)) for place, offset in begin.offsets.items()}
            begin = begin._replace(offsets=clamped)
        found = self._while_topics_go(lambda: self._ranges(begin, until, is_first))
        return [RangePartition(offset_range, until.topic_id(offset_range.topic)) for offset_range in found]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit_group(Mark.from_json(end))

    # Where a batch ends

    def _next_end(self, begin: Mark, limit: ReadLimit) -> Mark:
        while True:
            self._hear(begin)
            ends, query = self._up_to_target(begin.offsets), self._name_of_query(begin.query)
            until = Mark(ends, self._ids, query)
            start = self._starts(begin, until, is_first=begin == self._initial)
            end = self._admitted(start, until.offsets, limit)
            if end is None:
                return begin
            if self._are_the_same({place[0] for place, offset in end.items() if offset > start[place]}):
                return until._replace(offsets=end)
            time.sleep(self._options.look_up_pause_ms / 1000)  # not every broker may know of it yet

    def _up_to_target(self, begin: Offsets) -> Offsets:
        if self._target is None:
            return dict(self._latest)
        return {
            # a query that starts at `latest` begins behind its target if records came in between
            place: min(offset, max(self._target[place], begin.get(place, 0)))
            for place, offset in self._latest.items()
            if place in self._target
        }

    def _admitted(self, start: Offsets, until: Offsets, limit: ReadLimit) -> Offsets | None:
        """None: too little to begin with. AvailableNow takes what is there to its end, however little."""
        if isinstance(limit, ReadAllAvailable):
            return until
        if self._delay is not None and self._target is None:
            waiting = sum(max(0, end - start[place]) for place, end in until.items())
            if not self._delay.fires(waiting):
                return None
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.offsets_per_trigger_max
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_per_trigger_max
        if rows_max is not None:
            until = limited(start, until, rows_max)
        if bytes_max is not None:
            until = byte_limited(start, until, bytes_max, lambda offsets: sample_sizes(self._cluster, offsets))
        return until

    def _wait(self, begin: Mark) -> bool:
        """Whether it is worth another look. Spark asks an idle source again at once: waiting here, longer each time,
        spares the broker."""
        wait_ms, self._idle_wait_ms = self._idle_wait_ms, min(2 * self._idle_wait_ms + 10, IDLE_WAIT_MS_MAX)
        if any(offset > begin.offsets.get(place, 0) for place, offset in self._latest.items()):
            time.sleep(wait_ms / 1000)  # there are records, but too few
            return True
        return wait_for_records(self._cluster, begin.offsets, wait_ms)

    # What the cluster holds

    def _hear(self, begin: Mark) -> None:
        """Of the ends of all partitions, in `_latest`, of the topics with `_ids`. Where one lies before what was read
        already, it is asked for again: a new leader may answer with an older end for a moment, and a topic may have
        been made anew."""
        attempts = 0
        while True:
            places = self._places(begin)
            self._ids = self._topic_ids(places)
            self._latest = latest = self._cluster.latest(places)
            attempts += 1
            remade = begin.remade(self._ids)
            if attempts >= self._options.look_up_attempts or not any(
                latest[place] < begin.offsets.get(place, 0) and place[0] not in remade for place in latest
            ):
                return
            time.sleep(self._options.look_up_pause_ms / 1000)
            self._options.subscription.expire(self._cluster)

    def _are_the_same(self, topics: set[str]) -> bool:
        """Whether these topics have the ids that they had when the ends of their logs were asked for. A log's end does
        not tell which topic of that name it belongs to, and what was known of the topic may have been older."""
        topics = topics & self._ids.keys()
        if topics:
            learn = self._cluster.learn
            refused = self._cluster.retrying("looking topics up again", lambda: learn(topics, create=False))
            self._cluster.expire(*refused)
        return all(id_text(self._cluster.topic_id(topic)) == self._ids[topic] for topic in topics)

    def _places(self, begin: Mark) -> list[TopicPartition]:
        def missing(error: UnknownTopic) -> None:
            if not any(error.topic == known for known, _ in begin.offsets):  # else it is reported as a loss
                if self._options.fail_on_data_loss:
                    raise error
                if error.topic not in self._absent:
                    self._absent.add(error.topic)
                    _log.warning("%s. failOnDataLoss is false: going on without it until it is made", error)

        return self._options.subscription.partitions(self._cluster, missing)

    def _topic_ids(self, places: Iterable[TopicPartition]) -> dict[str, str]:
        """Of the topics of these partitions, as metadata has them that was asked for before."""
        ids = {topic: id_text(self._cluster.topic_id(topic)) for topic in {topic for topic, _ in places}}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id}

    def _earliest_of(self, anew: set[TopicPartition], until: Mark, is_behind: bool) -> Offsets:
        """The first offsets of those that begin `anew`; if a partition of `until` is to be read on, of all of them, as
        they were a moment ago at the latest."""
        there = [place for place in until.offsets if place in self._latest]  # of what was deleted nobody can say
        age_ms = (time.monotonic() - self._earliest_known_at) * 1000
        is_old = age_ms >= self._options.client.metadata_max_age_ms or not self._earliest.keys() >= set(there)
        if is_behind and is_old:
            self._earliest = self._cluster.earliest(there)
            self._earliest_known_at = time.monotonic()
        elif anew:
            self._earliest |= self._cluster.earliest(anew & set(there))
        return self._earliest

    # Where it begins

    def _starts(self, begin: Mark, until: Mark, is_first: bool) -> Offsets:
        """The starts of the partitions of `until`. What is lost before them is reported."""
        is_behind = any(until.offsets.get(place, 0) > offset for place, offset in begin.offsets.items())
        earliest = self._earliest_of(without_start(begin, until), until, is_behind)
        found, losses = starts(begin, until, earliest, is_first)
        gone = begin.offsets.keys() - until.offsets.keys()
        self._believe_no_longer(gone)
        self._report([self._gone(place, begin.offsets[place]) for place in sorted(gone)] + losses)
        return found

    def _ranges(self, begin: Mark, until: Mark, is_first: bool) -> list[OffsetRange]:
        if any(offset > self._latest.get(place, -1) for place, offset in until.offsets.items()):
            self._hear(until)
            until = self._still_there(begin, until)  # a batch of an earlier run
        whole = ranges(self._starts(begin, until, is_first), until.offsets)
        return split(whole, self._options.partitions_min, self._options.records_per_partition_max)

    def _still_there(self, begin: Mark, until: Mark) -> Mark:
        """What of a batch can be read whose end was settled by an earlier run."""
        remade = until.remade(self._ids)
        self._believe_no_longer(until.offsets.keys() - self._latest.keys())
        there: Offsets = {}
        losses: list[Loss] = []
        for place, end in sorted(until.offsets.items()):
            topic, partition = place
            start = begin.offsets.get(place, 0)
            if topic in remade:
                losses += [recreated(topic, partition, start, end, *remade[topic])] if start < end else []
                there[place] = start
            elif place not in self._latest:
                losses += [self._gone(place, start, end)] if start < end else []
                there[place] = start
            elif end > self._latest[place]:
                losses.append(truncated(topic, partition, end, self._latest[place]))
                there[place] = self._latest[place]
            else:
                there[place] = end
        self._report(losses)
        return until._replace(offsets=there)

    def _believe_no_longer(self, gone: Iterable[TopicPartition]) -> None:
        """The list of all topics may be newer than what is known of these."""
        for topic in {topic for topic, _ in gone}:
            self._cluster.expire(topic)

    def _gone(self, place: TopicPartition, start: int, end: int | None = None) -> Loss:
        topic, partition = place
        try:
            partitions = self._cluster.partitions(topic)
        except UnknownTopic:
            return deleted(topic, partition, start, end, whole_topic=True)
        if partition in partitions:
            return dropped(topic, partition, start)
        return deleted(topic, partition, start, end, whole_topic=False)

    def _report(self, losses: list[Loss]) -> None:
        """Once: a batch is looked at several times."""
        report(self._options.fail_on_data_loss, [loss for loss in losses if loss not in self._reported])
        self._reported.update(losses)

    def _while_topics_go(self, look: Callable[[], T]) -> T:
        """What `look` returns; a topic that is deleted while it looks is looked for anew."""
        attempts = 0
        while True:
            try:
                return look_up(look, self._options.look_up_attempts, self._options.look_up_pause_ms)
            except _GONE:
                attempts += 1
                if attempts >= self._options.look_up_attempts:
                    raise
                self._options.subscription.expire(self._cluster)

    # The group

    def _name_of_query(self, known: str | None) -> str:
        """Once made up, it is in the checkpoint."""
        self._query = known or self._query or str(uuid.uuid4())
        return self._query

    def _commit_group(self, done: Mark) -> None:
        group = self._options.client.group_id or f"{self._options.group_id_prefix}-{self._name_of_query(done.query)}"
        there = self._latest or done.offsets  # no broker takes a commit for what was deleted
        remade = done.remade(self._ids)  # and a topic made anew would take that of the old one
        if self._ids:
            self._groups.forget(remade.keys() | ({topic for topic, _ in done.offsets} - self._ids.keys()))
        committed = {
            place: offset
            for place, offset in done.offsets.items()
            if offset <= there.get(place, -1) and place[0] not in remade
        }
        self._groups.commit(group, committed)


def _same(begin: Mark, end: Mark) -> bool:
    """Whether there is nothing to read in between."""
    return begin.offsets == end.offsets and not begin.remade(end.topic_ids)
