"""The brokers of a cluster as one process knows them: where they are, which partitions they lead, connections to them.

What is known of a topic is believed until it is `metadata.max.age.ms` old or a broker contradicts it.
Safe for threads and after a fork: what is shared is replaced, never changed, and there are no locks.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import shuffle
from typing import NamedTuple, TypeVar
from uuid import UUID

from pylog.broker_lite.protocol import metadata
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.config import Address, ClientConfig
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import (
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    KafkaError,
    NotKafka,
    Retriable,
    UnknownPartition,
    UnknownTopic,
    kafka_error,
)
from pylog.connector.client.pool import ConnectionPool
from pylog.connector.client.retry import Retry, retrying

T = TypeVar("T")

UNKNOWN_TOPIC_GRACE_MS = 3_000  # a topic that was just made is not known to every broker at once
_NO_LEADER = -1


class Topic(NamedTuple):
    topic_id: UUID
    leaders: dict[int, int]  # by partition: the leader's node id, -1 while there is none
    known_at: float


class Brokers:
    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.pool = ConnectionPool(config)
        self._brokers: dict[int, Address] = {}
        self.controller = _NO_LEADER
        self._topics: dict[str, Topic] = {}
        self._doubtful: dict[Address, float] = {}  # brokers that did not answer, and when
        self._missing: set[str] = set()  # topics that were waited for in vain: nobody waits for them twice
        self._names: tuple[list[str], float] | None = None  # of all topics, and when they were asked for

    # Topics and leaders

    def topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> Topic:
        """What is known of a topic; UnknownTopic when it is not there (and, with `create`, does not come to be)."""
        known = self._topics.get(name)
        if known is not None and (time.monotonic() - known.known_at) * 1000 < self.config.metadata_max_age_ms:
            return known
        what = f"looking up the topic {name!r}"
        retry = Retry(self.config, what, self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        while True:
            try:
                return self._look_up(name, create, what)
            except Retriable as error:
                self.expire(name)
                unknown = isinstance(error, KafkaError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if unknown and (retry.waited_ms >= UNKNOWN_TOPIC_GRACE_MS or (name in self._missing and not create)):
                    self._missing.add(name)
                    raise UnknownTopic(name) from None
                retry.pause(error)

    def _look_up(self, name: str, create: bool, what: str) -> Topic:
        found = next((topic for topic in self.refresh([name], create) if topic.name == name), None)
        if found is None:
            raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        if found.error_code:
            raise kafka_error(found.error_code, what)
        if not found.partitions:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, what)
        return self._learn(name, found)

    def _learn(self, name: str, found: metadata.MetadataResponseTopic) -> Topic:
        leaders = {partition.partition_index: partition.leader_id for partition in found.partitions}
        self._topics[name] = topic = Topic(found.topic_id, leaders, time.monotonic())
        self._missing.discard(name)
        return topic

    def known_leader(self, topic: str, partition: int) -> int | None:
        """The node id of a partition's leader as it was last heard of; None if somebody must be asked."""
        known = self._topics.get(topic)
        if known is None:
            return None
        node = known.leaders.get(partition, _NO_LEADER)
        return node if node in self._brokers else None

    def why_leaderless(self, topic: str, partition: int) -> ClientError:
        """What there is to say where no leader is known, as it was last heard."""
        known = self._topics.get(topic)
        if known is not None and partition not in known.leaders:
            return UnknownPartition(topic, partition, len(known.leaders))
        return kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"looking for the leader of {topic}-{partition}")

    def learn(self, topics: Iterable[str], create: bool) -> dict[str, KafkaError]:
        """Ask once about topics; what is told against them, by topic. Retriable if nobody can be asked."""
        refused: dict[str, KafkaError] = {}
        for found in self.refresh(topics, create):
            name = found.name or ""
            if found.error_code:
                refused[name] = kafka_error(found.error_code, f"looking up the topic {name!r}")
            elif found.partitions:
                self._learn(name, found)
        return refused

    def topic_names(self) -> list[str]:
        """Of all topics but the cluster's internal ones, in order; one question, which tells of their leaders too."""
        known = self._names
        if known is not None and (time.monotonic() - known[1]) * 1000 < self.config.metadata_max_age_ms:
            return known[0]
        found = {topic.name: topic for topic in self.retrying("listing topics", lambda: self.refresh(None))}
        names: list[str] = []
        for name, topic in found.items():
            if name is not None and not topic.is_internal and not topic.error_code and topic.partitions:
                self._learn(name, topic)
                names.append(name)
        self._names = sorted(names), time.monotonic()
        return self._names[0]

    def expire_names(self) -> None:
        """Ask again, the next time, which topics there are."""
        self._names = None

    def refresh(self, topics: Iterable[str] | None = (), create: bool = False) -> list[metadata.MetadataResponseTopic]:
        """Ask any broker who the brokers are, and about these topics; None: about all."""
        wanted = None if topics is None else [metadata.MetadataRequestTopic(name=topic) for topic in topics]
        with self.any_broker() as connection:
            answer = connection.call(metadata.SPEC, metadata.MetadataRequest(wanted, create))
        if answer.error_code:
            raise kafka_error(answer.error_code, "asking for metadata")
        if answer.brokers:
            self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self.controller = answer.controller_id
        return answer.topics

    def expire(self, *topics: str) -> None:
        """Believe no longer what is known of these topics: a broker contradicted it."""
        for topic in topics:
            self._topics.pop(topic, None)

    def expire_led_by(self, node: int) -> None:
        """The same, for all topics with a partition that this broker leads."""
        self.expire(*[name for name, topic in list(self._topics.items()) if node in topic.leaders.values()])

    def partitions(self, topic: str, *, create: bool = False) -> list[int]:
        return sorted(self.topic(topic, create=create).leaders)

    def topic_id(self, topic: str) -> UUID:
        return self.topic(topic).topic_id

    def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader; a retriable error while it has none."""
        leaders = self.topic(topic).leaders
        if partition not in leaders:  # it may have been added since
            self.expire(topic)
            leaders = self.topic(topic).leaders
        if partition not in leaders:
            raise UnknownPartition(topic, partition, len(leaders))
        if leaders[partition] == _NO_LEADER or leaders[partition] not in self._brokers:
            self.expire(topic)
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"looking for the leader of {topic}-{partition}")
        return leaders[partition]

    # Connections

    @contextmanager
    def broker(self, node: int) -> Iterator[Connection]:
        """A connection to one broker, lent."""
        connection = self.connect(node)
        try:
            yield connection
        finally:
            self.pool.give(connection)

    def is_known(self, node: int) -> bool:
        return node in self._brokers

    def connect(self, node: int) -> Connection:
        """A connection to one broker, to be given back to the `pool`."""
        address = self._brokers.get(node)
        if address is None:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"connecting to broker {node}, which has left")
        try:
            connection = self.pool.take(address)
        except BrokerUnavailable as error:
            self.doubt(address)
            advertised = f"broker {node} at {address}, where the cluster says it is"
            raise BrokerUnavailable([(advertised, cause) for _, cause in error.tried]) from None
        except ConnectionLost:
            self.doubt(address)
            raise
        self.trust(address)
        return connection

    @property
    def nodes(self) -> list[int]:
        return list(self._brokers)

    def doubt(self, address: Address) -> None:
        """It did not answer: others are asked first, until it does."""
        self._doubtful[address] = time.monotonic()

    def doubt_node(self, node: int) -> None:
        address = self._brokers.get(node)
        if address is not None:
            self.doubt(address)

    def trust(self, address: Address) -> None:
        self._doubtful.pop(address, None)

    @contextmanager
    def any_broker(self) -> Iterator[Connection]:
        connection = self._connect_to_any()
        try:
            yield connection
        except ConnectionLost:
            self.doubt(connection.address)
            raise
        finally:
            self.pool.give(connection)
        self.trust(connection.address)

    def _connect_to_any(self) -> Connection:
        """To a broker that is known, or else to one of bootstrap.servers; each is tried, those in doubt last."""
        known = list(self._brokers.values())
        shuffle(known)
        known.sort(key=lambda address: not self.pool.has_idle(address))
        addresses = list(dict.fromkeys([*known, *self.config.bootstrap_servers]))
        addresses.sort(key=lambda address: self._doubtful.get(address, 0.0))
        tried: list[tuple[str, str]] = []
        foreign: list[NotKafka] = []
        for address in addresses:
            try:
                return self.pool.take(address)
            except BrokerUnavailable as error:
                tried += error.tried
            except ConnectionLost as error:
                tried.append((error.address, error.cause))
            except NotKafka as error:
                tried.append((error.address, error.cause))
                foreign.append(error)
            self.doubt(address)
        if len(foreign) == len(tried):
            raise foreign[0]
        raise BrokerUnavailable(tried)

    def retrying(self, what: str, attempt: Callable[[], T], topics: Iterable[str] = ()) -> T:
        return retrying(self.config, what, attempt, on_failure=lambda: self.expire(*topics))
