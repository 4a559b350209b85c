"""Where a batch begins, for exactly the partitions in which it ends, and what is lost before it. Pure.

A partition goes on where it was. A new one begins at its first offset, and so does every partition of a topic that was
deleted and made anew. What retention has overtaken goes on at the earliest that is there; a log that was cut short, at
its new end: what is left of it had been read.
"""

from collections.abc import Mapping

from pylog.connector.client.cluster import TopicPartition
from pylog.connector.spark.checkpoint import Mark
from pylog.connector.spark.data_loss import FROM_THE_EARLIEST, Loss, beyond, expired, recreated, truncated
from pylog.connector.spark.offsets import Offsets


def without_start(begin: Mark, until: Mark) -> set[TopicPartition]:
    """The partitions of `until` that do not go on anywhere: they are new, or their topics are. Where no id tells, a log
    that is shorter than it was counts as another one."""
    remade = begin.remade(until.topic_ids)
    return {
        place
        for place, end in until.offsets.items()
        if place not in begin.offsets
        or place[0] in remade
        or (end < begin.offsets[place] and place[0] not in begin.topic_ids)
    }


def starts(
    begin: Mark, until: Mark, earliest: Mapping[TopicPartition, int], is_first: bool
) -> tuple[Offsets, list[Loss]]:
    """(the start of each partition of `until`, what is gone before it). `earliest` has all `without_start`, and may
    have others; the first batch of a query begins where a user said."""
    anew = without_start(begin, until)
    remade = begin.remade(until.topic_ids)
    found: Offsets = {}
    losses: list[Loss] = []
    for place, end in sorted(until.offsets.items()):
        topic, partition = place
        known = begin.offsets.get(place, 0)
        found[place] = known
        if place in begin.offsets and topic in remade:
            losses.append(recreated(topic, partition, known, None, *remade[topic]))
            found[place] = earliest[place]
        elif end < known:
            loss = (beyond if is_first else truncated)(topic, partition, known, end)
            found[place] = end
            if place in anew and not is_first:
                loss, found[place] = loss._replace(what_then=FROM_THE_EARLIEST), earliest[place]
            losses.append(loss)
        elif known < earliest.get(place, 0) and (known < end or place in anew):
            losses.append(expired(topic, partition, known, earliest[place]))
            found[place] = min(earliest[place], end)
    return found, losses
