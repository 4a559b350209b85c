"""The options of the data source: one row each, and every row is honoured. The tables in docs/source.md are theirs."""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from pylog.connector.spark.offsets import parse_wanted
from pylog.connector.spark.option_types import (
    assignment,
    boolean,
    choice,
    duration_ms,
    milliseconds,
    name,
    pattern,
    positive,
    positive_int,
    time_ms,
    times_ms,
    topic,
    topics,
)


class Taker(Enum):
    """Who takes an option; the value is what messages call it."""

    BATCH = "spark.read"
    STREAM = "spark.readStream"
    SINK = "a write"


class Option(NamedTuple):
    """A row: `parse` turns text into a value, or raises ValueError with what it must be."""

    name: str
    takers: tuple[Taker, ...]
    parse: Callable[[str], Any]
    default: str | None  # as a user would write it
    doc: str
    is_sparks: bool = True  # or ours alone


GROUP = "group"


def _stream_start(text: str) -> Any:
    return GROUP if text.strip().lower() == GROUP else parse_wanted(text)


_BATCH, _STREAM, _SINK = (Taker.BATCH,), (Taker.STREAM,), (Taker.SINK,)
SOURCE = (Taker.BATCH, Taker.STREAM)

OPTIONS = (
    Option("subscribe", SOURCE, topics, None, "the topics to read, with commas between"),
    Option(
        "subscribePattern",
        SOURCE,
        pattern,
        None,
        "a regular expression: every topic is read in whose name it is found, internal topics excepted",
    ),
    Option("assign", SOURCE, assignment, None, 'the partitions to read, as JSON like {"topic": [0, 1]}'),
    Option(
        "startingOffsets",
        _BATCH,
        parse_wanted,
        "earliest",
        'where to start: earliest, or JSON as {"topic": {"0": 23, "1": -2}} that names every partition; -2 is earliest',
    ),
    Option(
        "startingOffsets",
        _STREAM,
        _stream_start,
        "latest",
        "where a new query starts: earliest, latest, group (where the group stands), or JSON, where -1 is latest; "
        "a checkpoint knows better",
    ),
    Option(
        "startingOffsetsWithoutCommit",
        _STREAM,
        choice("earliest", "latest", "error"),
        "error",
        "with startingOffsets=group: what holds for partitions without a commit of the group",
        is_sparks=False,
    ),
    Option(
        "startingTimestamp",
        SOURCE,
        time_ms,
        None,
        "start at the first record that is not older (milliseconds since 1970), in every partition; comes before "
        "startingOffsetsByTimestamp and startingOffsets",
    ),
    Option(
        "startingOffsetsByTimestamp",
        SOURCE,
        times_ms,
        None,
        'the same with a time for each partition, as JSON like {"topic": {"0": 1700000000000}}; comes before '
        "startingOffsets",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        SOURCE,
        choice("error", "latest"),
        "error",
        "what holds where no record is so young: error, or latest, which starts with what comes",
    ),
    Option(
        "endingOffsets",
        _BATCH,
        parse_wanted,
        "latest",
        "where to end (the offset itself is not read): latest, or JSON, where -1 is latest",
    ),
    Option(
        "endingTimestamp",
        _BATCH,
        time_ms,
        None,
        "end before the first record that is not older, or at latest where there is none; comes before "
        "endingOffsetsByTimestamp and endingOffsets",
    ),
    Option(
        "endingOffsetsByTimestamp",
        _BATCH,
        times_ms,
        None,
        "the same with a time for each partition, as JSON; comes before endingOffsets",
    ),
    Option(
        "maxOffsetsPerTrigger",
        _STREAM,
        positive,
        None,
        "the most offsets of one micro-batch, shared among partitions by what waits in them; not for Trigger.Once",
    ),
    Option(
        "minOffsetsPerTrigger",
        _STREAM,
        positive,
        None,
        "a micro-batch waits until so many offsets are there, maxTriggerDelay at most; the first one does not wait",
    ),
    Option(
        "maxTriggerDelay",
        _STREAM,
        duration_ms,
        "15m",
        "how long minOffsetsPerTrigger may hold up a micro-batch: a number with ms, s, m, h or d",
    ),
    Option(
        "maxBytesPerTrigger",
        _STREAM,
        positive,
        None,
        "about the most bytes of one micro-batch, as the broker keeps them",
        is_sparks=False,
    ),
    Option(
        "minPartitions",
        SOURCE,
        positive_int,
        None,
        "about as many tasks at least: ranges of offsets are split, larger ones into more",
    ),
    Option(
        "maxRecordsPerPartition",
        SOURCE,
        positive,
        None,
        "the most offsets of one task: larger ranges are split evenly. spark.read splits those of more than a million "
        "if neither this nor minPartitions is set",
    ),
    Option(
        "pushFilters",
        _BATCH,
        boolean,
        "false",
        "true: what filters on topic, partition, offset and time rule out is not read, where the session passes them; "
        "the DataFrame is then good for one query only",
        is_sparks=False,
    ),
    Option("includeHeaders", SOURCE, boolean, "false", "whether there is a column headers"),
    Option(
        "decode",
        SOURCE,
        choice("offsets"),
        None,
        "offsets: the commits of groups in __consumer_offsets, as typed columns",
        is_sparks=False,
    ),
    Option(
        "failOnDataLoss",
        SOURCE,
        boolean,
        "true",
        "true: fail when records to be read are gone; false: warn, and go on at the earliest that are there",
    ),
    Option(
        "groupIdPrefix",
        _STREAM,
        name,
        "spark-kafka-source",
        "how the name of the query's group begins; kafka.group.id names it outright",
    ),
    Option(
        "fetchOffset.numRetries",
        SOURCE,
        positive_int,
        "3",
        "how often the driver tries to look up offsets, each time for kafka.default.api.timeout.ms",
    ),
    Option(
        "fetchOffset.retryIntervalMs", SOURCE, milliseconds, "1000", "how long it waits before it tries to do so again"
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        SOURCE,
        milliseconds,
        None,
        "how long a task waits for records that should be there: two minutes, if neither this nor "
        "kafka.default.api.timeout.ms is set",
    ),
    Option("topic", _SINK, topic, None, "the topic all rows go to; a column topic is then left alone"),
)

SPARKS_OWN = ("path", "checkpointLocation", "queryName")
