"""The options of a group, under Kafka's names, with Kafka's defaults and bounds.

All are of the newer group protocols. They are kept and told as Kafka does it, for classic groups too, where they mean
nothing in Kafka either. What they fall back to, and the bounds of most of them, are options of Kafka's brokers that
are not there yet: their defaults stand here.
"""

import re

from pylog.broker_lite.config_types import INT32_MAX, Check, Kind, Row, anything, between, one_of

_SHORT_MS, _MIDDLE_MS, _LONG_MS, _LONGEST_MS = 5_000, 15_000, 45_000, 60_000
_BY_DURATION = "by_duration:"
_DURATION = re.compile(  # Java's: days, and behind a T hours, minutes and seconds, each with a sign of its own
    r"([+-]?)P(?=[^T]|T.)(?:([+-]?\d+)D)?(?:T(?=.)(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS = (86_400, 3_600, 60, 1)


def _where_to_begin(value: str) -> str | None:
    found = _DURATION.fullmatch(value.removeprefix(_BY_DURATION)) if value.startswith(_BY_DURATION) else None
    if found is not None:
        seconds = sum(int(found[part]) * unit for part, unit in enumerate(_SECONDS, 2) if found[part])
        if (seconds <= 0) if found[1] == "-" else (seconds >= 0):
            return None
    elif value in ("earliest", "latest"):
        return None
    return "must be earliest, latest or by_duration:PnDTnHnMn.nS"


def _of_kind(kind: str, what: str) -> tuple[Row, ...]:
    """What the three newer protocols have alike."""
    session, heartbeat, look = between(_LONG_MS, _LONGEST_MS), between(_SHORT_MS, _MIDDLE_MS), between(0, _MIDDLE_MS)
    return (
        _row(f"{kind}.session.timeout.ms", 45_000, session, f"A member of {what} may be silent for so long."),
        _row(f"{kind}.heartbeat.interval.ms", 5_000, heartbeat, f"How often members of {what} are to be heard of."),
        _row(f"{kind}.assignment.interval.ms", 1_000, look, f"Partitions of {what} are given out anew no more often."),
    )


def _row(name: str, default: int, check: Check, doc: str) -> Row:
    return Row(name, Kind.INT, default, check, doc, dynamic=True)


GROUP_ROWS = (
    *_of_kind("consumer", "a consumer group"),
    *_of_kind("share", "a share group"),
    _row("share.record.lock.duration.ms", 30_000, between(_MIDDLE_MS, _LONGEST_MS), "A record is so long a member's."),
    _row("share.delivery.count.limit", 5, between(2, 10), "How often a record is given to members of a share group."),
    _row("share.partition.max.record.locks", 2_000, between(100, 4_000), "Records of a partition under way at a time."),
    Row("share.auto.offset.reset", Kind.STRING, "latest", _where_to_begin, "Where a share group begins.", dynamic=True),
    Row(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        "Whether a share group gets records of transactions that are open or aborted.",
        dynamic=True,
    ),
    Row(
        "share.renew.acknowledge.enable",
        Kind.BOOLEAN,
        True,
        anything,
        "Whether members of a share group may have a record for longer.",
        dynamic=True,
    ),
    *_of_kind("streams", "a streams group"),
    _row("streams.num.standby.replicas", 0, between(0, 2), "Standby replicas of each task of a streams group."),
    _row("streams.initial.rebalance.delay.ms", 3_000, between(0, INT32_MAX), "A new streams group waits for members."),
)

GROUP_ROW = {row.name: row for row in GROUP_ROWS}
_OWN_NAMES = {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}


def broker_name(name: str) -> str:
    """Of what the option falls back to."""
    return name if name in _OWN_NAMES else f"group.{name}"
