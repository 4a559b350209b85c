"""What is read: topics by name, topics by pattern, or single partitions. What of it is there is asked each time anew.

Known topics are believed for `metadata.max.age.ms`, and so is the list of all topics that a pattern chooses from.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.client.errors import UnknownTopic

Missing = Callable[[UnknownTopic], None]


def _raise(error: UnknownTopic) -> None:
    raise error


class Topics(NamedTuple):
    names: tuple[str, ...]

    def partitions(self, cluster: Cluster, missing: Missing = _raise) -> list[TopicPartition]:
        """All that are there, in order; `missing` is told of a topic that is not."""
        return _partitions(cluster, self.names, missing)

    def expire(self, cluster: Cluster) -> None:
        """Believe no longer what is known of these topics."""
        cluster.expire(*self.names)


class Pattern(NamedTuple):
    """All topics in whose name the expression is found, anywhere; the cluster's internal topics are none of them."""

    text: str

    def partitions(self, cluster: Cluster, missing: Missing = _raise) -> list[TopicPartition]:
        """One that is deleted at this moment is no longer chosen, and so not missing."""
        return _partitions(cluster, self._names(cluster), lambda error: cluster.expire_names())

    def expire(self, cluster: Cluster) -> None:
        cluster.expire(*self._names(cluster))
        cluster.expire_names()

    def _names(self, cluster: Cluster) -> list[str]:
        return list(filter(re.compile(self.text, re.ASCII).search, cluster.topic_names()))


class Assignment(NamedTuple):
    places: tuple[TopicPartition, ...]

    def partitions(self, cluster: Cluster, missing: Missing = _raise) -> list[TopicPartition]:
        """Those that the topics do not have are left out."""
        there = set(_partitions(cluster, self._names, missing))
        return [place for place in self.places if place in there]

    def expire(self, cluster: Cluster) -> None:
        cluster.expire(*self._names)

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(topic for topic, _ in self.places))


Subscription = Topics | Pattern | Assignment


def _partitions(cluster: Cluster, names: Iterable[str], missing: Missing) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for name in names:
        try:
            found += [(name, partition) for partition in cluster.partitions(name)]
        except UnknownTopic as error:
            missing(error)
    return found
