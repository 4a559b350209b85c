"""The cluster's metadata: which topics there are, and which producer ids were given out.

Its events are KRaft's own metadata records; its log is `__cluster_metadata`. A topic exists when
its records are in that log: directories are made after, and swept after a crash in between.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.outcome import Outcome
from pylog.broker_lite.protocol import consumer_offsets, metadata_records
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.metadata_records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

CLUSTER_METADATA = metadata_records.TOPIC
CONSUMER_OFFSETS = consumer_offsets.TOPIC
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS})

TOPIC_NAME_CHARACTERS_MAX = 249
PARTITIONS_MAX = 100_000
PRODUCER_ID_BLOCK = 1000
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: UUID
    partition_count: int = 0
    overrides: dict[str, str] = field(default_factory=dict)


class Topics:
    def __init__(self, node_id: int) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self.deleted_ids: set[UUID] = set()
        self._node_id = node_id
        self._next_producer_id = 0
        self._producer_ids_end = 0  # ids below it are reserved in the log

    def create(
        self, name: str, partition_count: int, overrides: Mapping[str, str], topic_id: UUID
    ) -> Outcome[MetadataRecord, Topic]:
        check_name(name)
        if name == CLUSTER_METADATA:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the broker's own.")
        if name in self.by_name:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if not 1 <= partition_count <= PARTITIONS_MAX:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"Number of partitions was {partition_count}; 1 to {PARTITIONS_MAX} are possible.",
            )
        events: list[MetadataRecord] = [TopicRecord(name=name, topic_id=topic_id)]
        events += [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            for key, value in overrides.items()
        ]
        events += [
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=[self._node_id],
                isr=[self._node_id],
                leader=self._node_id,
                leader_epoch=0,
                partition_epoch=0,
            )
            for partition in range(partition_count)
        ]
        return Outcome(events, Topic(name, topic_id, partition_count, dict(overrides)))

    def delete(self, name: str | None, topic_id: UUID) -> Outcome[MetadataRecord, Topic]:
        """By name, or where that is None by id."""
        topic = self.by_id.get(topic_id) if name is None else self.by_name.get(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestError(code, "This server does not host this topic.")
        if topic.name in INTERNAL_TOPICS:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{topic.name} is internal and cannot be deleted.")
        return Outcome([RemoveTopicRecord(topic_id=topic.topic_id)], topic)

    def next_producer_id(self) -> Outcome[MetadataRecord, int]:
        """An id that nobody had. A block is reserved at a time: a restart skips the rest of its block."""
        given = self._next_producer_id
        events: list[MetadataRecord] = []
        if given == self._producer_ids_end:
            events.append(ProducerIdsRecord(broker_id=self._node_id, next_producer_id=given + PRODUCER_ID_BLOCK))
        return Outcome(events, given)

    def took_producer_id(self, producer_id: int) -> None:
        """The one change that is not an event: inside its reserved block an id needs no record."""
        self._next_producer_id = producer_id + 1

    def restarted(self) -> None:
        """After the log was replayed: which ids of the last block were given out is not known."""
        self._next_producer_id = self._producer_ids_end

    def replay(self, event: MetadataRecord) -> None:
        match event:
            case TopicRecord():
                topic = Topic(event.name, event.topic_id)
                self.by_name[event.name] = self.by_id[event.topic_id] = topic
            case PartitionRecord():
                self.by_id[event.topic_id].partition_count += 1
            case ConfigRecord():
                if event.resource_type == TOPIC_RESOURCE and event.value is not None:
                    self.by_name[event.resource_name].overrides[event.name] = event.value
            case RemoveTopicRecord():
                del self.by_name[self.by_id.pop(event.topic_id).name]
                self.deleted_ids.add(event.topic_id)
            case ProducerIdsRecord():
                self._producer_ids_end = event.next_producer_id


def check_name(name: str) -> None:
    if name in (".", "..") or len(name) > TOPIC_NAME_CHARACTERS_MAX or not _LEGAL_NAME.fullmatch(name):
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name '{name[:300]}' is illegal: "
            f"it must be 1 to {TOPIC_NAME_CHARACTERS_MAX} letters, digits, '.', '_' and '-'.",
        )
