"""Offsets by topic and partition: as users give them, as checkpoints keep them, as the code works with them.

Users and checkpoints write `{"topic": {"0": 123}}`, as Spark's Kafka connector does. Spark compares offsets as JSON
text, so what goes into a checkpoint is always sorted.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pylog.connector.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition

Offsets = dict[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]
NOTE = "@pylog"  # in place of a topic's name, which cannot have such a character: what a checkpoint keeps besides


class AtTime(NamedTuple):
    """The first offsets whose records are not older than a time, of all partitions or of each its own."""

    times_ms: int | Offsets
    none_is_latest: bool  # where no record is so young; else that is an error


class AtGroup(NamedTuple):
    """Where a group stands."""

    without_commit: int | None  # EARLIEST or LATEST for partitions without a commit; None: that is an error


# EARLIEST or LATEST for every partition, or one by one, where these two may stand too; or found out otherwise.
Wanted = int | Offsets | AtTime | AtGroup

_NAMES = {"earliest": EARLIEST, "latest": LATEST}
_INT64_MAX = (1 << 63) - 1


def parse_wanted(text: str) -> int | Offsets:
    """`earliest`, `latest` or JSON; ValueError with what it must be."""
    name = text.strip().lower()
    if name in _NAMES:
        return _NAMES[name]
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError('must be earliest, latest, or JSON like {"topic": {"0": 23, "1": -2}}') from None
    if isinstance(found, dict):
        found.pop(NOTE, None)  # copied along from the progress of a query
    try:
        return by_partition(found, EARLIEST)
    except BadNumber as error:
        topic, partition, offset = error.args
        raise ValueError(
            f"must have offsets from 0 on, -2 for earliest or -1 for latest; {topic}-{partition} has {offset!r}"
        ) from None


class BadNumber(ValueError):
    """The number of a partition: (topic, partition, what stands there)."""


def by_partition(found: Any, least: int) -> Offsets:
    """The numbers of `{"topic": {"0": 23}}`, each at least `least`; ValueError with what it must be."""
    if not isinstance(found, dict) or not found or not all(isinstance(ids, dict) for ids in found.values()):
        raise ValueError('must be JSON of topics, partitions and offsets, like {"topic": {"0": 23, "1": -2}}')
    numbers: Offsets = {}
    for topic, ids in found.items():
        for partition, number in ids.items():
            if not (partition.isascii() and partition.isdecimal()):
                raise ValueError(f"must have numbers for partitions; {topic!r} has {partition!r}")
            if type(number) is not int or not least <= number <= _INT64_MAX:
                raise BadNumber(topic, partition, number)
            numbers[topic, int(partition)] = number
    return numbers


def to_json(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    found: JsonOffsets = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(partition)): int(offset) for topic, ids in offsets.items() for partition, offset in ids.items()}


def text(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"


def resolve(cluster: Cluster, option: str, wanted: Wanted, partitions: list[TopicPartition]) -> Offsets:
    """The offsets that are meant, for exactly these partitions; ValueError when others are named."""
    match wanted:
        case AtGroup():
            return _at_group(cluster, option, wanted, partitions)
        case AtTime():
            return _at_time(cluster, option, wanted, partitions)
    asked = _of_each(option, wanted, partitions, " (-2: its earliest offset, -1: its latest)")
    looked_up = cluster.list_offsets({place: offset for place, offset in asked.items() if offset in (EARLIEST, LATEST)})
    return {**asked, **looked_up}


def _of_each(option: str, wanted: int | Offsets, partitions: list[TopicPartition], hint: str = "") -> Offsets:
    asked = dict.fromkeys(partitions, wanted) if isinstance(wanted, int) else wanted
    if asked.keys() != set(partitions):
        raise ValueError(
            f"{option} must name every partition that is read and no other{hint}. "
            f"It names: {text(asked)}. There are: {text(partitions)}"
        )
    return asked


def _at_time(cluster: Cluster, option: str, wanted: AtTime, partitions: list[TopicPartition]) -> Offsets:
    times_ms = _of_each(option, wanted.times_ms, partitions)
    found = cluster.list_offsets(times_ms)
    none = [place for place in times_ms if found[place] < 0]
    if none and not wanted.none_is_latest:
        times = ", ".join(f"{topic}-{partition} at {times_ms[topic, partition]}" for topic, partition in sorted(none))
        raise ValueError(
            f"{option}: no record is at or after the time asked for: {times}. To start there with what comes, "
            "set startingOffsetsByTimestampStrategy to latest"
        )
    return {**found, **(cluster.latest(none) if none else {})}


def _at_group(cluster: Cluster, option: str, wanted: AtGroup, partitions: list[TopicPartition]) -> Offsets:
    group = cluster.config.group_id
    committed = cluster.committed_offsets(group, partitions)
    none = [place for place in partitions if place not in committed]
    if not none:
        return committed
    if wanted.without_commit is None:
        raise ValueError(
            f"{option} is group, and the group {group!r} has no commit for {text(none)}. To start there all the same, "
            "set startingOffsetsWithoutCommit to earliest or latest"
        )
    return {**committed, **cluster.list_offsets(dict.fromkeys(none, wanted.without_commit))}
