"""What of a subscription is there, on a cluster of which all that is known is its answers."""

from typing import cast

import pytest

from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.client.errors import UnknownTopic
from pylog.connector.spark.subscription import Assignment, Pattern, Subscription, Topics


class Known:
    """A cluster with the topics it is told of; those in `fading` are listed, and gone when they are asked for."""

    def __init__(self, topics: dict[str, int], fading: tuple[str, ...] = ()) -> None:
        self._topics = topics
        self._fading = fading
        self.names_expired = 0

    def partitions(self, topic: str) -> list[int]:
        if topic not in self._topics:
            raise UnknownTopic(topic)
        return list(range(self._topics[topic]))

    def topic_names(self) -> list[str]:
        return sorted([*self._topics, *self._fading])

    def expire_names(self) -> None:
        self.names_expired += 1


def known(topics: dict[str, int], fading: tuple[str, ...] = ()) -> Cluster:
    return cast("Cluster", Known(topics, fading))


@pytest.mark.parametrize(
    ("subscription", "wanted"),
    [
        pytest.param(Topics(("b", "a1")), [("b", 0), ("a1", 0), ("a1", 1)], id="topics, in their order"),
        pytest.param(Pattern("a"), [("a1", 0), ("a1", 1), ("xa", 0)], id="anywhere in the name"),
        pytest.param(Pattern("^a.$"), [("a1", 0), ("a1", 1)], id="anchored"),
        pytest.param(Pattern(r"\d"), [("a1", 0), ("a1", 1)], id="a class"),
        pytest.param(Pattern("nothing"), [], id="nothing fits"),
        pytest.param(Assignment((("a1", 1), ("a1", 9), ("b", 0))), [("a1", 1), ("b", 0)], id="only those there"),
    ],
)
def test_what_is_there_is_read(subscription: Subscription, wanted: list[TopicPartition]) -> None:
    assert subscription.partitions(known({"a1": 2, "b": 1, "xa": 1})) == wanted


@pytest.mark.parametrize("subscription", [Topics(("a", "gone")), Assignment((("a", 0), ("gone", 0)))])
def test_a_named_topic_that_is_missing_is_an_error_unless_somebody_takes_it(subscription: Subscription) -> None:
    with pytest.raises(UnknownTopic):
        subscription.partitions(known({"a": 1}))
    missing: list[str] = []
    found = subscription.partitions(known({"a": 1}), lambda error: missing.append(error.topic))
    assert (found, missing) == ([("a", 0)], ["gone"])


def test_a_topic_that_goes_while_a_pattern_is_looked_at_is_none_of_its_topics() -> None:
    cluster = Known({"a": 1}, fading=("ab",))
    assert Pattern("a").partitions(cast("Cluster", cluster)) == [("a", 0)]
    assert cluster.names_expired == 1
