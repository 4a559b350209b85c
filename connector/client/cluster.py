"""Calls to a cluster: offsets of logs, offsets of groups, topics.

Every call goes to the broker that can answer it, and is tried again with fresh metadata while its failure
may pass by itself (`Retriable`), up to `default.api.timeout.ms`.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import TypeVar

from pylog.broker_lite.protocol import (
    create_topics,
    delete_topics,
    find_coordinator,
    list_offsets,
    offset_commit,
    offset_fetch,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import READ_COMMITTED, READ_UNCOMMITTED
from pylog.broker_lite.protocol.list_offsets import ListOffsetsPartitionResponse
from pylog.connector.client.brokers import Brokers
from pylog.connector.client.config import Address, ClientConfig
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import UnknownTopic, kafka_error
from pylog.connector.client.retry import retrying

T = TypeVar("T")
TopicPartition = tuple[str, int]

EARLIEST = list_offsets.EARLIEST_TIMESTAMP
LATEST = list_offsets.LATEST_TIMESTAMP


class Cluster(Brokers):
    """Nothing is connected before the first call."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self._coordinators: dict[str, Address] = {}

    @staticmethod
    def of(config: ClientConfig) -> "Cluster":
        """The one of this process for this configuration, so that its connections are used again."""
        return _clusters.get(config) or _clusters.setdefault(config, Cluster(config))

    # Offsets of the log

    @property
    def isolation_level(self) -> int:
        """As requests carry it."""
        return READ_COMMITTED if self.config.isolation_level == "read_committed" else READ_UNCOMMITTED

    def list_offsets(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Per partition: -2 the first offset, -1 the next one to be written, else the first offset whose
        timestamp is at least the one given, -1 where there is none. One request per leader.

        With read_committed a log ends where its first open transaction begins: at its last stable offset."""
        return {place: record.offset for place, record in self._list_offsets(partitions).items()}

    def newest_times_ms(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The largest timestamp in each log, of records that are deleted already perhaps; partitions of which it is
        not known are left out, and so are those of brokers before Kafka 3.0, which would not understand."""
        found = self._list_offsets(dict.fromkeys(partitions, list_offsets.MAX_TIMESTAMP))
        return {place: record.timestamp for place, record in found.items() if record.offset >= 0}

    def _list_offsets(
        self, partitions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
        found: dict[TopicPartition, ListOffsetsPartitionResponse] = {}

        def attempt() -> dict[TopicPartition, ListOffsetsPartitionResponse]:
            by_leader: dict[int, dict[TopicPartition, int]] = {}
            for (topic, partition), timestamp in partitions.items():
                if (topic, partition) not in found:
                    by_leader.setdefault(self.leader(topic, partition), {})[topic, partition] = timestamp
            for node, wanted in by_leader.items():
                self._list_offsets_of(node, wanted, found)
            return found

        return self.retrying("listing offsets", attempt, {topic for topic, _ in partitions})

    def _list_offsets_of(
        self,
        node: int,
        wanted: Mapping[TopicPartition, int],
        found: dict[TopicPartition, ListOffsetsPartitionResponse],
    ) -> None:
        request = list_offsets.ListOffsetsRequest(
            isolation_level=self.isolation_level,
            topics=[
                list_offsets.ListOffsetsTopic(
                    topic,
                    [
                        list_offsets.ListOffsetsPartition(partition, timestamp=wanted[topic, partition])
                        for partition in ids
                    ],
                )
                for topic, ids in _by_topic(wanted).items()
            ],
        )
        with self.broker(node) as connection:
            if list_offsets.MAX_TIMESTAMP in wanted.values() and connection.version(list_offsets.SPEC) < 7:
                found |= {place: ListOffsetsPartitionResponse(place[1]) for place in wanted}
                return
            answer = connection.call(list_offsets.SPEC, request)
        failure = None
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    failure = kafka_error(
                        partition.error_code, f"listing offsets of {topic.name}-{partition.partition_index}"
                    )
                else:
                    found[topic.name, partition.partition_index] = partition
        if failure is not None:
            raise failure

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.list_offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.list_offsets(dict.fromkeys(partitions, LATEST))

    # Offsets of groups

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Keep the offsets in the cluster under the group's name, as a group without members."""
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    topic,
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            partition, offsets[topic, partition], committed_metadata=metadata
                        )
                        for partition in ids
                    ],
                )
                for topic, ids in _by_topic(offsets).items()
            ],
        )

        def commit(connection: Connection) -> None:
            for topic in connection.call(offset_commit.SPEC, request).topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        raise kafka_error(
                            partition.error_code,
                            f"committing {topic.name}-{partition.partition_index} for the group {group!r}",
                        )

        if offsets:
            self._ask_coordinator(group, commit)

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """What the group has committed, of these partitions or of all; those without a commit are left out."""
        topics = None
        if partitions is not None:
            topics = [
                offset_fetch.OffsetFetchRequestTopic(name, partition_indexes=ids)
                for name, ids in _by_topic(partitions).items()
            ]
        request = offset_fetch.OffsetFetchRequest(
            group_id=group,
            topics=topics,
            groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=topics)],  # since v8
            require_stable=True,
        )
        context = f"fetching the offsets of the group {group!r}"

        def fetch(connection: Connection) -> dict[TopicPartition, int]:
            answer = connection.call(offset_fetch.SPEC, request)
            code = answer.error_code or next((part.error_code for part in answer.groups if part.error_code), 0)
            if code:
                raise kafka_error(code, context)
            found: dict[TopicPartition, int] = {}
            for topic in chain(answer.topics, *(part.topics for part in answer.groups)):  # by group since v8
                for partition in topic.partitions:
                    if partition.error_code:
                        raise kafka_error(partition.error_code, f"{context}: {topic.name}-{partition.partition_index}")
                    if partition.committed_offset >= 0:
                        found[topic.name, partition.partition_index] = partition.committed_offset
            return found

        return self._ask_coordinator(group, fetch)

    def _ask_coordinator(self, group: str, ask: Callable[[Connection], T]) -> T:
        def attempt() -> T:
            address = self._coordinators.get(group) or self._find_coordinator(group)
            with self.pool.lend(address) as connection:
                return ask(connection)

        def forget() -> None:
            self._coordinators.pop(group, None)

        return retrying(self.config, f"asking the coordinator of the group {group!r}", attempt, forget)

    def _find_coordinator(self, group: str) -> Address:
        request = find_coordinator.FindCoordinatorRequest(key=group, coordinator_keys=[group])
        with self.any_broker() as connection:
            answer = connection.call(find_coordinator.SPEC, request)
        found = answer.coordinators[0] if answer.coordinators else answer  # many keys at once since v4
        if found.error_code:
            raise kafka_error(
                found.error_code, f"looking for the coordinator of the group {group!r}", found.error_message
            )
        return self._coordinators.setdefault(group, Address(found.host, found.port))

    # Making and deleting topics

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, str] | None = None,
        exists_ok: bool = False,
    ) -> None:
        """Returns when the topic can be used. -1: as the broker is configured."""
        request = create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(
                    name,
                    partitions,
                    replication_factor,
                    configs=[create_topics.CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
                )
            ],
            timeout_ms=self.config.request_timeout_ms,
        )

        def create(connection: Connection, again: bool) -> None:
            for topic in connection.call(create_topics.SPEC, request).topics:
                made_before = topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and (again or exists_ok)
                if topic.error_code and not made_before:
                    raise kafka_error(topic.error_code, f"creating the topic {name!r}", topic.error_message)

        self._ask_controller(f"creating the topic {name!r}", create)
        self._missing.discard(name)
        self.retrying(
            f"waiting for the leaders of {name!r}",
            lambda: [self.leader(name, partition) for partition in self.partitions(name)],
            [name],
        )

    def delete_topic(self, name: str) -> None:
        request = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name)],
            topic_names=[name],
            timeout_ms=self.config.request_timeout_ms,
        )

        def delete(connection: Connection, again: bool) -> None:
            for topic in connection.call(delete_topics.SPEC, request).responses:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    if not again:
                        raise UnknownTopic(name)
                elif topic.error_code:
                    raise kafka_error(topic.error_code, f"deleting the topic {name!r}", topic.error_message)

        self._ask_controller(f"deleting the topic {name!r}", delete)
        self.expire(name)

    def _ask_controller(self, what: str, ask: Callable[[Connection, bool], None]) -> None:
        """`ask` is told whether an attempt before it may have succeeded without our hearing of it."""
        attempts = 0

        def attempt() -> None:
            nonlocal attempts
            self.refresh()
            with self.broker(self.controller) if self.is_known(self.controller) else self.any_broker() as broker:
                attempts += 1
                ask(broker, attempts > 1)

        self.retrying(what, attempt)


_clusters: dict[ClientConfig, Cluster] = {}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
