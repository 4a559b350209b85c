"""Offsets by topic and partition: as users give them, as checkpoints keep them, as the code works with them.

Users and checkpoints write `{"topic": {"0": 123}}`, as Spark's Kafka connector does. Spark compares offsets as JSON
text, so what goes into a checkpoint is always sorted.
"""

import json
from collections.abc import Iterable, Mapping

from pylog.connector.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition

Offsets = dict[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]
Wanted = int | Offsets  # EARLIEST or LATEST for every partition, or one by one, where these two may stand too

_NAMES = {"earliest": EARLIEST, "latest": LATEST}
_INT64_MAX = (1 << 63) - 1


def parse_wanted(text: str) -> Wanted:
    """`earliest`, `latest` or JSON; ValueError with what it must be."""
    name = text.strip().lower()
    if name in _NAMES:
        return _NAMES[name]
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError('must be earliest, latest, or JSON like {"topic": {"0": 23, "1": -2}}') from None
    if not isinstance(found, dict) or not found or not all(isinstance(ids, dict) for ids in found.values()):
        raise ValueError('must be JSON of topics, partitions and offsets, like {"topic": {"0": 23, "1": -2}}')
    wanted: Offsets = {}
    for topic, ids in found.items():
        for partition, offset in ids.items():
            if not partition.isdecimal():
                raise ValueError(f"must have numbers for partitions; {topic!r} has {partition!r}")
            if type(offset) is not int or not EARLIEST <= offset <= _INT64_MAX:
                raise ValueError(
                    f"must have offsets from 0 on, -2 for earliest or -1 for latest; {topic}-{partition} has {offset!r}"
                )
            wanted[topic, int(partition)] = offset
    return wanted


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
    asked = dict.fromkeys(partitions, wanted) if isinstance(wanted, int) else wanted
    if asked.keys() != set(partitions):
        raise ValueError(
            f"{option} must name every partition that is read and no other (-2: its earliest offset, -1: its latest). "
            f"It names: {text(asked)}. There are: {text(partitions)}"
        )
    looked_up = cluster.list_offsets({place: offset for place, offset in asked.items() if offset in (EARLIEST, LATEST)})
    return {**asked, **looked_up}
