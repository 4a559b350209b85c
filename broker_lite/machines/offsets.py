"""Committed offsets: group, topic, partition -> offset. Its log is `__consumer_offsets`, which it shares with `groups`.

Who may commit is for the group to say; here is what was committed, and what is to be forgotten.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from pylog.broker_lite.machines.outcome import Outcome
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.wire import ZERO_UUID

Place = tuple[str, int]  # topic, partition


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1  # only where a client of old said so; else the broker's retention counts
    topic_id: UUID = ZERO_UUID  # zero where it was not kept: records of older brokers, and those with an end

    def is_of(self, topic_id: UUID) -> bool:
        """A commit for a topic that was deleted is none for another one of its name."""
        return self.topic_id in (topic_id, ZERO_UUID)


@dataclass(frozen=True, slots=True)
class OffsetEvent:
    key: OffsetKey
    value: CommittedOffset | None  # None: the offset is gone


class Offsets:
    def __init__(self, metadata_units_max: int) -> None:
        """Kafka counts UTF-16 units, though `offset.metadata.max.bytes` says bytes."""
        self._groups: dict[str, dict[Place, CommittedOffset]] = {}
        self._metadata_units_max = metadata_units_max

    def decide(
        self, group: str, commits: Mapping[Place, CommittedOffset]
    ) -> Outcome[OffsetEvent, dict[Place, ErrorCode]]:
        """Whoever commits may."""
        reply: dict[Place, ErrorCode] = {}
        events = []
        for place, committed in commits.items():
            if len(committed.metadata.encode("utf-16-le")) // 2 > self._metadata_units_max:
                reply[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            reply[place] = ErrorCode.NONE
            events.append(OffsetEvent(OffsetKey(group, *place), committed))
        return Outcome(events, reply)

    def tombstones(self, group: str, places: Iterable[Place]) -> list[OffsetEvent]:
        """To forget what is committed for these."""
        committed = self.committed(group)
        return [OffsetEvent(OffsetKey(group, *place), None) for place in places if place in committed]

    def topic_deleted(self, topic: str) -> dict[str, list[OffsetEvent]]:
        """By group: what to forget, so that a topic made anew under the same name begins without commits."""
        gone = {
            group: self.tombstones(group, [place for place in committed if place[0] == topic])
            for group, committed in self._groups.items()
        }
        return {group: events for group, events in gone.items() if events}

    def committed(self, group: str) -> dict[Place, CommittedOffset]:
        return self._groups.get(group, {})

    def replay(self, event: OffsetEvent) -> None:
        group, place = event.key.group, (event.key.topic, event.key.partition)
        if event.value is not None:
            self._groups.setdefault(group, {})[place] = event.value
        elif group in self._groups:
            self._groups[group].pop(place, None)
            if not self._groups[group]:
                del self._groups[group]

    def unload(self, group: str) -> None:
        """Its log is lost: that nothing is known is not the same as that nothing was committed."""
        self._groups.pop(group, None)
