"""The options of topics: most override one of the broker's, under a name of their own; the others are theirs alone."""

from pylog.broker_lite.config_rows import ROW
from pylog.broker_lite.config_types import Check, Kind, Row, at_least, only

# What a topic may override, and the broker's row that has its default, its type and its bounds.
BROKER_NAME = {
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "preallocate": "log.preallocate",
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
}

_CHECKS: dict[str, Check] = {"retention.ms": at_least(-1)}  # Kafka lets a topic, not a broker, keep nothing: 0

_NO_TIERS = "tiered storage is not there yet"
_NO_FOLLOWERS = "there is one node, so no replica follows another"

_OWN_ROWS = (
    Row("remote.storage.enable", Kind.BOOLEAN, False, only(False, _NO_TIERS), "Move old segments to a remote tier."),
    Row("remote.log.copy.disable", Kind.BOOLEAN, False, only(False, _NO_TIERS), "Move no more of them."),
    Row("remote.log.delete.on.disable", Kind.BOOLEAN, False, only(False, _NO_TIERS), "Delete what was moved."),
    Row(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        only((), _NO_FOLLOWERS),
        "The replicas for which the leader holds back.",
    ),
    Row(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        only((), _NO_FOLLOWERS),
        "The replicas that hold back themselves.",
    ),
)


def _row(name: str, broker_name: str) -> Row:
    """As the broker's, under the topic's name. Every option of a topic may be changed while the broker runs."""
    row = ROW[broker_name]
    return Row(name, row.kind, row.default, _CHECKS.get(name, row.check), row.doc, dynamic=True)


TOPIC_ROW = {row.name: row for row in (*(_row(*names) for names in BROKER_NAME.items()), *_OWN_ROWS)}
