"""The options of logs, one row each, under Kafka's own names, with Kafka's defaults and bounds.

A topic may override most of them, under another name. Where a bound is not Kafka's, the row says why.
"""

from pylog.broker_lite.config_types import (
    INT32_MAX,
    INT64_MAX,
    Kind,
    Row,
    anything,
    at_least,
    between,
    one_of,
    only,
)

_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS

CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
DELETE, COMPACT = "delete", "compact"
PRODUCER, UNCOMPRESSED, GZIP, SNAPPY, LZ4, ZSTD = "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"

_NO_TIERS = "tiered storage is not there yet"


def _time_to_keep(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= INT64_MAX else "must be -1 (for ever) or at least 1"


def _policies(value: tuple[str, ...]) -> str | None:
    return None if set(value) <= {DELETE, COMPACT} else f"must be {DELETE}, {COMPACT} or both, separated by a comma"


def _gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "must be -1 (gzip's own choice) or between 1 and 9"


LOG_ROWS = (
    Row(
        "message.max.bytes",
        Kind.INT,
        1_048_588,
        between(0, INT32_MAX),
        "The largest record batch, as it arrives; a topic's max.message.bytes overrides it.",
        dynamic=True,
    ),
    Row(
        "log.message.timestamp.type",
        Kind.STRING,
        CREATE_TIME,
        one_of(CREATE_TIME, LOG_APPEND_TIME),
        "Whether a record's timestamp is its producer's (CreateTime) or the time of its append (LogAppendTime).",
        dynamic=True,
    ),
    Row(
        "log.message.timestamp.before.max.ms",
        Kind.LONG,
        INT64_MAX,
        at_least(0),
        "With CreateTime, a record whose timestamp is so much before the broker's clock is refused.",
        dynamic=True,
    ),
    Row(
        "log.message.timestamp.after.max.ms",
        Kind.LONG,
        _HOUR_MS,
        at_least(0),
        "With CreateTime, a record whose timestamp is so much after the broker's clock is refused.",
        dynamic=True,
    ),
    Row(
        "compression.type",
        Kind.STRING,
        PRODUCER,
        one_of(UNCOMPRESSED, ZSTD, LZ4, SNAPPY, GZIP, PRODUCER),
        "How records are kept: as their producer has compressed them (producer), or with this codec.",
        dynamic=True,
    ),
    Row(
        "compression.gzip.level",
        Kind.INT,
        -1,
        _gzip_level,
        "The level where compression.type is gzip (-1: gzip's own choice).",
        dynamic=True,
    ),
    Row("compression.lz4.level", Kind.INT, 9, between(1, 17), "The level where compression.type is lz4.", dynamic=True),
    Row(
        "compression.zstd.level",
        Kind.INT,
        3,
        between(-131_072, 22),
        "The level where compression.type is zstd.",
        dynamic=True,
    ),
    # Replicas: there is one of each partition
    Row(
        "min.insync.replicas",
        Kind.INT,
        1,
        at_least(1),
        "With acks=all, records are refused while fewer replicas than this are in sync: one is, here.",
        dynamic=True,
    ),
    Row(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        anything,
        "Let a replica lead that is not in sync. There is none: with one replica both values mean the same.",
        dynamic=True,
    ),
    # Segments. Kafka 4 refuses segments below 1 MB; small ones do no harm here, and tests want them.
    Row(
        "log.segment.bytes",
        Kind.INT,
        1 << 30,
        between(61, INT32_MAX),
        "A segment file is closed, and the next begun, before it would grow past this.",
        dynamic=True,
    ),
    Row(
        "log.roll.ms",
        Kind.LONG,
        None,
        at_least(1),
        "A segment is closed when a record comes that is so much younger than its first; wins over log.roll.hours.",
        dynamic=True,
    ),
    Row("log.roll.hours", Kind.INT, 168, between(1, INT32_MAX), "As log.roll.ms, in hours."),
    Row(
        "log.roll.jitter.ms",
        Kind.LONG,
        None,
        at_least(0),
        "As much is taken off log.roll.ms, by chance: not all segments end at once; wins over log.roll.jitter.hours.",
        dynamic=True,
    ),
    Row("log.roll.jitter.hours", Kind.INT, 0, between(0, INT32_MAX), "As log.roll.jitter.ms, in hours."),
    Row(
        "log.index.interval.bytes",
        Kind.INT,
        4096,
        between(0, INT32_MAX),
        "An index entry is written after so many bytes of log.",
        dynamic=True,
    ),
    Row(
        "log.index.size.max.bytes",
        Kind.INT,
        10 << 20,
        between(24, INT32_MAX),  # room for a closing entry of the time index
        "The largest index file; a full one closes its segment.",
        dynamic=True,
    ),
    Row(
        "log.preallocate",
        Kind.BOOLEAN,
        False,
        only(False, "segments are not preallocated"),
        "Give a new segment its full size at once. Not here: file systems of today gain nothing by it.",
        dynamic=True,
    ),
    # Deletion
    Row(
        "log.cleanup.policy",
        Kind.LIST,
        (DELETE,),
        _policies,
        "What happens to old records: delete them by time and size, compact them by key, or both (compact,delete).",
        dynamic=True,
    ),
    Row(
        "log.retention.ms",
        Kind.LONG,
        None,
        _time_to_keep,
        "A segment is deleted when its youngest record is so old (-1: never); wins over minutes and hours.",
        dynamic=True,
    ),
    Row("log.retention.minutes", Kind.INT, None, _time_to_keep, "As log.retention.ms, in minutes; wins over hours."),
    Row("log.retention.hours", Kind.INT, 168, _time_to_keep, "As log.retention.ms, in hours."),
    Row(
        "log.retention.bytes",
        Kind.LONG,
        -1,
        at_least(-1),
        "The oldest segments of a partition are deleted as long as it has so many bytes without them (-1: never).",
        dynamic=True,
    ),
    Row(
        "log.retention.check.interval.ms",
        Kind.LONG,
        5 * _MINUTE_MS,
        at_least(1),
        "How often segments to delete are looked for.",
    ),
    Row(
        "log.segment.delete.delay.ms",
        Kind.LONG,
        _MINUTE_MS,
        at_least(0),
        "The files of deleted segments stay so long: somebody may be reading them.",
        dynamic=True,
    ),
    Row(
        "log.local.retention.ms",
        Kind.LONG,
        -2,
        only(-2, _NO_TIERS),
        "How long segments stay that are in a remote tier as well. There is none: -2, as log.retention.ms.",
        dynamic=True,
    ),
    Row(
        "log.local.retention.bytes",
        Kind.LONG,
        -2,
        only(-2, _NO_TIERS),
        "As log.local.retention.ms, by size.",
        dynamic=True,
    ),
    # Compaction
    Row(
        "log.cleaner.min.cleanable.ratio",
        Kind.DOUBLE,
        0.5,
        between(0, 1),
        "A log is compacted when this part of it was written since the last time.",
        dynamic=True,
    ),
    Row(
        "log.cleaner.min.compaction.lag.ms",
        Kind.LONG,
        0,
        at_least(0),
        "Younger records than this are not compacted.",
        dynamic=True,
    ),
    Row(
        "log.cleaner.max.compaction.lag.ms",
        Kind.LONG,
        INT64_MAX,
        at_least(1),
        "A log with older records than this that were never compacted is compacted, whatever the ratio.",
        dynamic=True,
    ),
    Row(
        "log.cleaner.delete.retention.ms",
        Kind.LONG,
        _DAY_MS,
        at_least(0),
        "Compaction keeps the record of a deletion (no value) so long, for readers that are on their way.",
        dynamic=True,
    ),
    Row(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        128 << 20,
        at_least((1 << 20) + 1),
        "The memory for the keys of one round of compaction; what does not fit is left to the next round.",
        dynamic=True,
    ),
    Row(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        at_least(0),
        "How often a log to compact is looked for.",
        dynamic=True,
    ),
    # Durability
    Row(
        "log.flush.interval.messages",
        Kind.LONG,
        INT64_MAX,
        at_least(1),
        "After so many records a partition is synced to the disk before the append is answered.",
        dynamic=True,
    ),
    Row(
        "log.flush.interval.ms",
        Kind.LONG,
        None,
        at_least(0),
        "Records are synced to the disk after this time; if not set, after log.flush.scheduler.interval.ms.",
        dynamic=True,
    ),
    Row(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        INT64_MAX,
        at_least(1),
        "How often logs to sync are looked for; at its default every second, for topics that have a flush.ms.",
    ),
    Row(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        _MINUTE_MS,
        at_least(1),
        "How often it is noted how far the logs are on the disk: what lies behind is scanned after a crash.",
    ),
    Row(
        "log.initial.task.delay.ms",
        Kind.LONG,
        30_000,
        at_least(0),
        "Flushing, checkpoints and deletion begin so long after the start.",
    ),
    Row(
        "producer.id.expiration.ms",
        Kind.INT,
        _DAY_MS,
        between(1, INT32_MAX),
        "An idempotent producer that wrote nothing for so long is forgotten.",
        dynamic=True,
    ),
)

# Where the first is not set, the next that is counts, in so many milliseconds each.
INSTEAD: dict[str, tuple[tuple[str, int], ...]] = {
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.retention.ms": (("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
