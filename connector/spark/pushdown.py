"""Filters of a batch read that say which offsets need not be read at all.

Topics and partitions are chosen and offsets are cut exactly, so Spark need not look at such filters again. A filter on
time is only a bound, and Spark looks again: the broker says where the first record stands that is not older, and no
record before it can fit, however disordered the times are. There is no such bound at the end: behind any record an
older one may follow.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.spark.offsets import Offsets

_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_OFFSET_END_MAX = 1 << 63
_EPOCH = datetime.fromtimestamp(0, UTC)

# What a filter says of a value that is never null.
_TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: found == value,
    EqualNullSafe: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    In: lambda found, value: found in value,
    StringStartsWith: lambda found, value: found.startswith(value),
    StringEndsWith: lambda found, value: found.endswith(value),
    StringContains: lambda found, value: value in found,
}
_TYPES: dict[str, type] = {"topic": str, "partition": int}


def can_be_asked() -> bool:
    """Whether Spark is about to push filters down. A reader that takes them fails where the session does not allow
    them, and only the process that Spark asks tells: it runs this module of PySpark's."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(main, "name", None) == _WORKER


class Narrowing(NamedTuple):
    """What is left to be read. Travels to the tasks with its reader, so small."""

    places: tuple[Filter, ...] = ()  # on topic and partition
    offset_start: int = 0
    offset_end: int = _OFFSET_END_MAX
    time_ms_min: int | None = None

    def apply(self, cluster: Cluster, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The parts of [start, end). `end` is settled already: what is written from now on is not asked for."""
        left = [
            (topic, partition)
            for topic, partition in end
            if all(_fits(one, {"topic": topic, "partition": partition}) for one in self.places)
        ]
        begin = {place: max(start[place], self.offset_start) for place in left}
        until = {place: min(end[place], self.offset_end) for place in left}
        if self.time_ms_min is not None:
            asked = [place for place in left if begin[place] < until[place]]
            begin |= _not_older(cluster, self.time_ms_min, asked, begin, until)
        return begin, until


def _not_older(
    cluster: Cluster, time_ms: int, asked: list[TopicPartition], begin: Offsets, until: Offsets
) -> dict[TopicPartition, int]:
    """Where to begin so that no record is left out that is not older than `time_ms`.

    That there is none must be said twice: Kafka looks into one segment only, the first whose largest time will do,
    and finds nothing in it if that record is deleted already, or if the segment has no times at all."""
    found = cluster.list_offsets(dict.fromkeys(asked, time_ms))
    none = [place for place in asked if found[place] < 0]
    newest_ms = cluster.newest_times_ms(none) if none else {}
    empty = {place for place in none if newest_ms.get(place, time_ms) < time_ms}
    return {place: until[place] if place in empty else max(begin[place], found[place]) for place in asked}


def narrowed(filters: list[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What the filters (all of which hold) leave to be read, and those that Spark must still look at."""
    found, rest = Narrowing(), []
    for one in filters:
        match one:
            case IsNotNull(attribute=("topic" | "partition" | "offset",)):
                continue  # they never are
            case _ if _is_of_places(one):
                found = found._replace(places=(*found.places, one))
                continue
        offsets = _offsets(one)
        if offsets is not None:
            start, end, exact = offsets
            found = found._replace(offset_start=max(found.offset_start, start), offset_end=min(found.offset_end, end))
            if exact:
                continue
        time_ms = _time_ms_min(one)
        if time_ms is not None:
            found = found._replace(time_ms_min=max(found.time_ms_min or 0, time_ms))
        rest.append(one)
    return found, rest


def _is_of_places(one: Filter) -> bool:
    match one:
        case Not(child=child):
            return _is_of_places(child)
        case EqualTo() | EqualNullSafe() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            values: tuple[Any, ...] = (one.value,)
        case In():
            values = tuple(one.value)
        case StringStartsWith() | StringEndsWith() | StringContains():
            values = (one.value,)
        case _:
            return False
    wanted = _TYPES.get(one.attribute[0]) if len(one.attribute) == 1 else None
    return wanted is not None and all(type(value) is wanted for value in values)


def _fits(one: Filter, place: Mapping[str, Any]) -> bool:
    if isinstance(one, Not):
        return not _fits(one.child, place)
    return _TESTS[type(one)](place[one.attribute[0]], one.value)  # type: ignore[attr-defined]


def _offsets(one: Filter) -> tuple[int, int, bool] | None:
    """(first, end, whether that is all the filter says); None: nothing about offsets."""
    match one:
        case EqualTo(("offset",), int(value)) | EqualNullSafe(("offset",), int(value)):
            return value, value + 1, True
        case GreaterThan(("offset",), int(value)):
            return value + 1, _OFFSET_END_MAX, True
        case GreaterThanOrEqual(("offset",), int(value)):
            return value, _OFFSET_END_MAX, True
        case LessThan(("offset",), int(value)):
            return 0, value, True
        case LessThanOrEqual(("offset",), int(value)):
            return 0, value + 1, True
        case In(("offset",), values) if values and all(type(value) is int for value in values):
            return min(values), max(values) + 1, False
    return None


def _time_ms_min(one: Filter) -> int | None:
    """The least time of a record that can fit, in milliseconds; None where there is none, or it says nothing."""
    match one:
        case GreaterThan(("timestamp",), datetime() as value):
            least_us = _us(value, 1)
        case (
            EqualTo(("timestamp",), datetime() as value)
            | EqualNullSafe(("timestamp",), datetime() as value)
            | GreaterThanOrEqual(("timestamp",), datetime() as value)
        ):
            least_us = _us(value)
        case In(("timestamp",), values) if values and all(isinstance(value, datetime) for value in values):
            every_us = [_us(value) for value in values]
            least_us = min((us for us in every_us if us is not None), default=None) if None not in every_us else None
        case _:
            return None
    # To the next millisecond; and none below 1, for to a broker such numbers are no times.
    return -(-least_us // 1000) if least_us is not None and least_us > 0 else None


def _us(value: datetime, more: int = 0) -> int | None:
    return (value - _EPOCH) // timedelta(microseconds=1) + more if value.tzinfo is not None else None
