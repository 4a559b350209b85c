"""The cluster's metadata: which topics there are, what was configured, and which producer ids were given out.

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
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

CLUSTER_METADATA = metadata_records.TOPIC
CONSUMER_OFFSETS = consumer_offsets.TOPIC
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS})
# Kafka's own, and not there yet: how many partitions they have is for whoever will write to them.
NEVER_AUTO_CREATED = frozenset({CLUSTER_METADATA, "__transaction_state", "__share_group_state"})

TOPIC_NAME_CHARACTERS_MAX = 249
PARTITIONS_AT_ONCE_MAX = 10_000  # Kafka's
PRODUCER_ID_BLOCK = 1000
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


# Who has a quota: ("client-id", name), ("user", name) or both, in this order; no name is who has none of its own.
Entity = tuple[tuple[str, str | None], ...]


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: UUID
    partition_count: int = 0
    overrides: dict[str, str] = field(default_factory=dict)
    leader_epoch: int = 0  # of all its partitions: one node leads them all


class Topics:
    def __init__(self, node_id: int) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self.deleted_ids: set[UUID] = set()
        self._name_by_id: dict[bytes, str] = {}
        self._crashes = 0
        self.broker_overrides: dict[str, dict[str, str]] = {}  # by the broker's id, or "" for all of them
        self.group_overrides: dict[str, dict[str, str]] = {}  # of groups that have some
        self.quotas: dict[Entity, dict[str, float]] = {}  # of clients and users that have some
        self._by_metric_name: dict[str, set[str]] = {}
        self._node_id = node_id
        self._next_producer_id = 0
        self._producer_ids_end = 0  # ids below it are reserved in the log

    def create(
        self, name: str, partition_count: int, overrides: Mapping[str, str], topic_id: UUID
    ) -> Outcome[MetadataRecord, Topic]:
        self.check_new(name)
        check_partition_count(partition_count)
        _check_not_too_many(partition_count)
        events: list[MetadataRecord] = [TopicRecord(name=name, topic_id=topic_id)]
        events += [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            for key, value in overrides.items()
        ]
        events += [self._partition(topic_id, index) for index in range(partition_count)]
        return Outcome(events, Topic(name, topic_id, partition_count, dict(overrides)))

    def check_new(self, name: str) -> None:
        """Whether a topic may be made with this name."""
        check_name(name)
        if name == CLUSTER_METADATA:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{name} is the broker's own.")
        if name in self.by_name:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        alike = self._by_metric_name.get(_metric_name(name))
        if alike:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with '{min(alike)}': in names of metrics '.' and '_' are the same.",
            )

    def add_partitions(self, name: str, partition_count: int) -> Outcome[MetadataRecord, Topic]:
        """So many it is to have then."""
        topic = self.by_name.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        if partition_count <= topic.partition_count:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic '{name}' has {topic.partition_count} partitions: {partition_count} would not be more.",
            )
        _check_not_too_many(partition_count - topic.partition_count)
        added = range(topic.partition_count, partition_count)
        return Outcome([self._partition(topic.topic_id, index, topic.leader_epoch) for index in added], topic)

    def _partition(self, topic_id: UUID, index: int, leader_epoch: int = 0) -> PartitionRecord:
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[self._node_id],
            isr=[self._node_id],
            leader=self._node_id,
            leader_epoch=leader_epoch,
            partition_epoch=0,
        )

    def overrides_of(self, resource_type: int, name: str) -> dict[str, str]:
        """Of a topic that is there, of a broker, of all brokers, or of a group."""
        if resource_type == TOPIC_RESOURCE:
            return self.by_name[name].overrides
        return (self.group_overrides if resource_type == GROUP_RESOURCE else self.broker_overrides).get(name, {})

    def configure(
        self, resource_type: int, name: str, changes: Mapping[str, str | None]
    ) -> Outcome[MetadataRecord, None]:
        """None gives an option back to its default. What is so already needs no record."""
        present = self.overrides_of(resource_type, name)
        return Outcome(
            [
                ConfigRecord(resource_type=resource_type, resource_name=name, name=option, value=value)
                for option, value in changes.items()
                if present.get(option) != value
            ],
            None,
        )

    def set_quotas(self, entity: Entity, changes: Mapping[str, float | None]) -> Outcome[MetadataRecord, None]:
        """None takes a quota away. What is so already needs no record."""
        present = self.quotas.get(entity, {})
        parts = [QuotaEntity(*part) for part in entity]
        return Outcome(
            [
                ClientQuotaRecord(parts, key, 0.0 if value is None else value, remove=value is None)
                for key, value in changes.items()
                if present.get(key) != value
            ],
            None,
        )

    def delete(self, name: str | None, topic_id: UUID) -> Outcome[MetadataRecord, Topic]:
        """By name, or where that is None by id."""
        topic = self.by_id.get(topic_id) if name is None else self.by_name.get(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestError(code, "This server does not host this topic.")
        return Outcome([RemoveTopicRecord(topic_id=topic.topic_id)], topic)

    def name_of(self, topic: str | bytes) -> str | None:
        """Of a topic that a request names by its name or its id; None for an id that no topic has."""
        return topic if isinstance(topic, str) else self._name_by_id.get(topic)

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

    def crashed(self, incarnation_id: UUID) -> Outcome[MetadataRecord, None]:
        """The broker comes back, and the end of a log may be lost: who has read it will see that another leader goes
        on. To be on the disk before anybody is told of the new epochs."""
        came_back = RegisterBrokerRecord(self._node_id, incarnation_id, self._crashes + 1, fenced=False)
        return Outcome([came_back] if self.by_name else [], None)

    def restarted(self) -> None:
        """After the log was replayed: which ids of the last block were given out is not known."""
        self._next_producer_id = self._producer_ids_end

    def replay(self, event: MetadataRecord) -> None:
        match event:
            case RegisterBrokerRecord():
                self._crashes = event.broker_epoch
                for topic in self.by_name.values():
                    topic.leader_epoch += 1
            case TopicRecord():
                topic = Topic(event.name, event.topic_id)
                self.by_name[event.name] = self.by_id[event.topic_id] = topic
                self._name_by_id[event.topic_id.bytes] = event.name
                self._by_metric_name.setdefault(_metric_name(event.name), set()).add(event.name)
            case PartitionRecord():
                topic = self.by_id[event.topic_id]
                topic.partition_count = max(topic.partition_count, event.partition_id + 1)
            case ConfigRecord():
                if event.resource_type == TOPIC_RESOURCE:
                    _set(self.by_name[event.resource_name].overrides, event)
                elif event.resource_type == BROKER_RESOURCE:
                    _set(self.broker_overrides.setdefault(event.resource_name, {}), event)
                elif event.resource_type == GROUP_RESOURCE:
                    _set(self.group_overrides.setdefault(event.resource_name, {}), event)
                    if not self.group_overrides[event.resource_name]:
                        del self.group_overrides[event.resource_name]
            case RemoveTopicRecord():
                name = self.by_id.pop(event.topic_id).name
                del self.by_name[name]
                del self._name_by_id[event.topic_id.bytes]
                self.deleted_ids.add(event.topic_id)
                self._by_metric_name[_metric_name(name)].discard(name)
            case ClientQuotaRecord():
                self._replay_quota(event)
            case ProducerIdsRecord():
                self._producer_ids_end = event.next_producer_id

    def _replay_quota(self, event: ClientQuotaRecord) -> None:
        entity = tuple(sorted({part.entity_type: part.entity_name for part in event.entity}.items()))
        of_entity = self.quotas.setdefault(entity, {})
        if event.remove:
            of_entity.pop(event.key, None)
        else:
            of_entity[event.key] = event.value
        if not of_entity:
            del self.quotas[entity]


def check_name(name: str) -> None:
    if name in (".", "..") or len(name) > TOPIC_NAME_CHARACTERS_MAX or not _LEGAL_NAME.fullmatch(name):
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name '{name[:300]}' is illegal: "
            f"it must be 1 to {TOPIC_NAME_CHARACTERS_MAX} letters, digits, '.', '_' and '-'.",
        )


def check_partition_count(partition_count: int) -> None:
    if partition_count < 1:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS, f"A topic has at least one partition; {partition_count} were asked for."
        )


def _check_not_too_many(partition_count: int) -> None:
    if partition_count > PARTITIONS_AT_ONCE_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition_count} new partitions are too many at once; {PARTITIONS_AT_ONCE_MAX} are possible.",
        )


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")


def _set(overrides: dict[str, str], event: ConfigRecord) -> None:
    if event.value is None:
        overrides.pop(event.name, None)
    else:
        overrides[event.name] = event.value
