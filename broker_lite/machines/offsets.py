"""Committed offsets: group, topic, partition -> offset. Its log is `__consumer_offsets`.

Groups have no members yet, so a commit comes from a consumer that assigns its own partitions
(generation -1, no member id), as Spark's do.
"""

from dataclasses import dataclass
from typing import NamedTuple

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.outcome import Outcome
from pylog.broker_lite.protocol.errors import ErrorCode


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OffsetEvent:
    key: OffsetKey
    value: CommittedOffset | None  # None: the offset is gone


class Offsets:
    def __init__(self, metadata_bytes_max: int) -> None:
        self._groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._metadata_bytes_max = metadata_bytes_max

    def commit(
        self, group: str, generation_id: int, commits: dict[tuple[str, int], CommittedOffset]
    ) -> Outcome[OffsetEvent, dict[tuple[str, int], ErrorCode]]:
        if not group:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
        if generation_id >= 0:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION, f"Group '{group}' has no members, nor generations.")
        reply: dict[tuple[str, int], ErrorCode] = {}
        events = []
        for place, committed in commits.items():
            if len(committed.metadata.encode()) > self._metadata_bytes_max:
                reply[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            reply[place] = ErrorCode.NONE
            events.append(OffsetEvent(OffsetKey(group, *place), committed))
        return Outcome(events, reply)

    def topic_deleted(self, topic: str) -> dict[str, list[OffsetEvent]]:
        """By group: what to forget, so that a topic made anew under the same name begins without commits."""
        gone: dict[str, list[OffsetEvent]] = {}
        for group, committed in self._groups.items():
            for place in committed:
                if place[0] == topic:
                    gone.setdefault(group, []).append(OffsetEvent(OffsetKey(group, *place), None))
        return gone

    def committed(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        return self._groups.get(group, {})

    def replay(self, event: OffsetEvent) -> None:
        group, place = event.key.group, (event.key.topic, event.key.partition)
        if event.value is not None:
            self._groups.setdefault(group, {})[place] = event.value
        elif group in self._groups:
            self._groups[group].pop(place, None)
            if not self._groups[group]:
                del self._groups[group]
