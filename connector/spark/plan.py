"""Which offsets a batch reads. Pure: what the cluster holds goes in, ranges come out.

A partition that is in `end` but not in `start` is new: it is read from its earliest offset. One that is in `start`
but not in `end` is gone.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import floor
from typing import NamedTuple

from pylog.connector.client.cluster import TopicPartition
from pylog.connector.spark.offsets import Offsets


class OffsetRange(NamedTuple):
    """The records of a partition with start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


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


def split(whole: list[OffsetRange], partitions_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """The same offsets in more ranges: none larger than `records_max`, then about `partitions_min` of them at least.

    As in Spark's connector, the larger ranges are split for the second, in proportion to their size: those whose
    share is one range are left alone, and the rest share what is left of `partitions_min`. Rounding may give a few
    ranges more or less."""
    found = whole
    if records_max is not None:
        found = [part for one in found for part in _parts(one, -(-one.size // records_max))]
    if partitions_min is not None and len(found) < partitions_min:
        total = sum(one.size for one in found)
        large = [one for one in found if _share(one.size, total, partitions_min) > 1]
        left, of_large = partitions_min - (len(found) - len(large)), sum(one.size for one in large)
        counts = {one: _share(one.size, of_large, left) for one in large}
        found = [part for one in found for part in _parts(one, counts.get(one, 1))]
    return found


def _share(size: int, total: int, count: int) -> int:
    return max(floor(size / total * count + 0.5), 1)


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` ranges one after the other, or one for each offset if there are fewer."""
    count = min(count, whole.size)
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(edges)]
