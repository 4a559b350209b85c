"""Which offsets a batch reads. Pure: what the cluster holds goes in, ranges come out.

A partition that is in `end` but not in `start` is new: it is read from its earliest offset. One that is in `start`
but not in `end` is gone.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pylog.connector.client.cluster import TopicPartition
from pylog.connector.spark.offsets import Offsets


class OffsetRange(NamedTuple):
    """The records of a partition with start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int


def limited(begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows_max: int) -> Offsets:
    """The ends of a batch with about `rows_max` offsets: every partition gives in proportion to what waits in it.

    Shares are rounded down, but a partition where something waits gives at least one offset, so that none starves."""
    waiting = {place: end[place] - begin[place] for place in end if end[place] > begin[place]}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(end)
    shares = {place: max(1, rows_max * count // total) for place, count in waiting.items()}
    return {place: begin[place] + shares[place] if place in shares else end[place] for place in end}


def ranges(begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """One for each partition with something to read."""
    return [
        OffsetRange(topic, partition, begin[topic, partition], end[topic, partition])
        for topic, partition in sorted(end)
        if begin[topic, partition] < end[topic, partition]
    ]
