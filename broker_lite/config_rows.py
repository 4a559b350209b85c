"""The options, one row each, under Kafka's own names, with Kafka's defaults and bounds.

Flags, `conf/broker.toml` and what a topic may override all come from these rows. Where a bound is not Kafka's, the
row says why.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS

CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
DELETE, COMPACT = "delete", "compact"

Check = Callable[[Any], str | None]  # what is wrong with a value, or None


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    parse: Callable[[Any], Any]
    default: Any  # None: not set
    check: Check
    doc: str


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError("must be true or false")


def _integer(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError("must be a whole number")
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError("must be a whole number") from None


def _number(value: Any) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise ValueError("must be a number")
    return number


def _words(value: Any) -> tuple[str, ...]:
    """`a, b` or, in TOML, `["a", "b"]`; the same word twice counts once."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError("must be words, separated by commas")
    words = [word.strip() for word in words]
    return () if words == [""] else tuple(dict.fromkeys(words))


def _between(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must be between {low} and {high}"


def _at_least(low: int) -> Check:
    return _between(low, INT64_MAX)


def _time_to_keep(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= INT64_MAX else "must be -1 (for ever) or at least 1"


def _one_of(*words: str) -> Check:
    return lambda value: None if value in words else f"must be {' or '.join(words)}"


def _policies(value: tuple[str, ...]) -> str | None:
    return None if set(value) <= {DELETE, COMPACT} else f"must be {DELETE}, {COMPACT} or both, separated by a comma"


def _directories(value: tuple[str, ...]) -> str | None:
    return None if value and all(value) else "must name one directory or several, separated by commas"


def _anything(value: Any) -> None:
    return None


BROKER_ROWS = (
    Row("node.id", _integer, 1, _between(0, INT32_MAX), "The id under which this broker presents itself."),
    Row(
        "log.dirs",
        _words,
        None,
        _directories,
        "Where the logs are kept: directories, separated by commas. --data wins over it.",
    ),
    Row(
        "auto.create.topics.enable",
        _boolean,
        True,
        _anything,
        "Create a topic when a client asks for metadata of one that is not there.",
    ),
    Row("num.partitions", _integer, 1, _between(1, 100_000), "Partitions of a topic whose creator did not say."),
    Row("delete.topic.enable", _boolean, True, _anything, "Let clients delete topics."),
    Row(
        "message.max.bytes",
        _integer,
        1_048_588,
        _between(0, INT32_MAX),
        "The largest record batch, as it arrives; a topic's max.message.bytes overrides it.",
    ),
    Row(
        "log.message.timestamp.type",
        str,
        CREATE_TIME,
        _one_of(CREATE_TIME, LOG_APPEND_TIME),
        "Whether a record's timestamp is its producer's (CreateTime) or the time of its append (LogAppendTime).",
    ),
    # Segments. Kafka 4 refuses segments below 1 MB; small ones do no harm here, and tests want them.
    Row(
        "log.segment.bytes",
        _integer,
        1 << 30,
        _between(61, INT32_MAX),
        "A segment file is closed, and the next begun, before it would grow past this.",
    ),
    Row(
        "log.roll.ms",
        _integer,
        None,
        _at_least(1),
        "A segment is closed when a record comes that is so much younger than its first; wins over log.roll.hours.",
    ),
    Row("log.roll.hours", _integer, 168, _between(1, INT32_MAX), "As log.roll.ms, in hours."),
    Row(
        "log.roll.jitter.ms",
        _integer,
        None,
        _at_least(0),
        "As much is taken off log.roll.ms, by chance: not all segments end at once; wins over log.roll.jitter.hours.",
    ),
    Row("log.roll.jitter.hours", _integer, 0, _between(0, INT32_MAX), "As log.roll.jitter.ms, in hours."),
    Row(
        "log.index.interval.bytes",
        _integer,
        4096,
        _between(0, INT32_MAX),
        "An index entry is written after so many bytes of log.",
    ),
    Row(
        "log.index.size.max.bytes",
        _integer,
        10 << 20,
        _between(24, INT32_MAX),  # room for a closing entry of the time index
        "The largest index file; a full one closes its segment.",
    ),
    # Deletion
    Row(
        "log.cleanup.policy",
        _words,
        (DELETE,),
        _policies,
        "What happens to old records: delete them by time and size, compact them by key, or both (compact,delete).",
    ),
    Row(
        "log.retention.ms",
        _integer,
        None,
        _time_to_keep,
        "A segment is deleted when its youngest record is so old (-1: never); wins over minutes and hours.",
    ),
    Row("log.retention.minutes", _integer, None, _time_to_keep, "As log.retention.ms, in minutes; wins over hours."),
    Row("log.retention.hours", _integer, 168, _time_to_keep, "As log.retention.ms, in hours."),
    Row(
        "log.retention.bytes",
        _integer,
        -1,
        _at_least(-1),
        "The oldest segments of a partition are deleted as long as it has so many bytes without them (-1: never).",
    ),
    Row(
        "log.retention.check.interval.ms",
        _integer,
        5 * _MINUTE_MS,
        _at_least(1),
        "How often segments to delete are looked for.",
    ),
    Row(
        "log.segment.delete.delay.ms",
        _integer,
        _MINUTE_MS,
        _at_least(0),
        "The files of deleted segments stay so long: somebody may be reading them.",
    ),
    # Compaction
    Row(
        "log.cleaner.min.cleanable.ratio",
        _number,
        0.5,
        _between(0, 1),
        "A log is compacted when this part of it was written since the last time.",
    ),
    Row(
        "log.cleaner.min.compaction.lag.ms",
        _integer,
        0,
        _at_least(0),
        "Younger records than this are not compacted.",
    ),
    Row(
        "log.cleaner.max.compaction.lag.ms",
        _integer,
        INT64_MAX,
        _at_least(1),
        "A log with older records than this that were never compacted is compacted, whatever the ratio.",
    ),
    Row(
        "log.cleaner.delete.retention.ms",
        _integer,
        _DAY_MS,
        _at_least(0),
        "Compaction keeps the record of a deletion (no value) so long, for readers that are on their way.",
    ),
    Row(
        "log.cleaner.dedupe.buffer.size",
        _integer,
        128 << 20,
        _at_least((1 << 20) + 1),
        "The memory for the keys of one round of compaction; what does not fit is left to the next round.",
    ),
    Row("log.cleaner.backoff.ms", _integer, 15_000, _at_least(0), "How often a log to compact is looked for."),
    # Durability
    Row(
        "log.flush.interval.messages",
        _integer,
        INT64_MAX,
        _at_least(1),
        "After so many records a partition is synced to the disk before the append is answered.",
    ),
    Row(
        "log.flush.interval.ms",
        _integer,
        None,
        _at_least(0),
        "Records are synced to the disk after this time; if not set, after log.flush.scheduler.interval.ms.",
    ),
    Row(
        "log.flush.scheduler.interval.ms",
        _integer,
        INT64_MAX,
        _at_least(1),
        "How often logs to sync are looked for; at its default every second, for topics that have a flush.ms.",
    ),
    Row(
        "log.flush.offset.checkpoint.interval.ms",
        _integer,
        _MINUTE_MS,
        _at_least(1),
        "How often it is noted how far the logs are on the disk: what lies behind is scanned after a crash.",
    ),
    Row(
        "log.initial.task.delay.ms",
        _integer,
        30_000,
        _at_least(0),
        "Flushing, checkpoints and deletion begin so long after the start.",
    ),
    Row(
        "producer.id.expiration.ms",
        _integer,
        _DAY_MS,
        _between(1, INT32_MAX),
        "An idempotent producer that wrote nothing for so long is forgotten.",
    ),
    # Groups
    Row(
        "group.min.session.timeout.ms",
        _integer,
        6_000,
        _between(0, INT32_MAX),  # Kafka takes negative ones, which say no more than 0
        "The shortest session.timeout.ms that a member of a group may have.",
    ),
    Row(
        "group.max.session.timeout.ms",
        _integer,
        30 * _MINUTE_MS,
        _between(0, INT32_MAX),
        "The longest session.timeout.ms that a member of a group may have.",
    ),
    Row(
        "group.initial.rebalance.delay.ms",
        _integer,
        3_000,
        _between(0, INT32_MAX),
        "The first rebalance of a group waits so long for more members.",
    ),
    Row("group.max.size", _integer, INT32_MAX, _between(1, INT32_MAX), "The most members that a group may have."),
    Row(
        "offsets.retention.minutes",
        _integer,
        7 * 24 * 60,
        _between(1, INT32_MAX),
        "Committed offsets of a group that has lost its members are kept so long.",
    ),
    Row(
        "offsets.retention.check.interval.ms",
        _integer,
        10 * _MINUTE_MS,
        _at_least(1),
        "How often committed offsets to forget are looked for.",
    ),
    Row(
        "offsets.topic.num.partitions",
        _integer,
        50,
        _between(1, 100_000),
        "Partitions of __consumer_offsets. Not to be changed once that topic is there.",
    ),
    Row(
        "offsets.topic.segment.bytes",
        _integer,
        100 << 20,
        _between(61, INT32_MAX),
        "Segments of __consumer_offsets, which is compacted. Counts when that topic is made.",
    ),
    Row(
        "offset.metadata.max.bytes",
        _integer,
        4096,
        _between(0, INT32_MAX),
        "The longest text that a client may commit beside an offset.",
    ),
    # Requests
    Row("fetch.max.bytes", _integer, 55 << 20, _between(1024, INT32_MAX), "The most that one fetch is answered with."),
    Row(
        "socket.request.max.bytes",
        _integer,
        100 << 20,
        _between(1, INT32_MAX),
        "The largest request; a connection that announces more is closed.",
    ),
)

ROW = {row.name: row for row in BROKER_ROWS}

# Where the first is not set, the next that is counts, in so many milliseconds each.
INSTEAD: dict[str, tuple[tuple[str, int], ...]] = {
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.retention.ms": (("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}

# What a topic may override, and the broker's row that has its default, its type and its bounds.
TOPIC_ROWS = {
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
}

TOPIC_CHECKS: dict[str, Check] = {"retention.ms": _at_least(-1)}  # Kafka lets a topic, not a broker, keep nothing: 0
