"""CreateTopics, key 19. The topics of a request are decided one after the other, and made together."""

from collections import Counter
from typing import TYPE_CHECKING

from pylog.broker_lite import config_view
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.machines.topics import PARTITIONS_AT_ONCE_MAX, Topic, check_partition_count
from pylog.broker_lite.protocol.create_topics import (
    SPEC,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.time_limit import TimeLimit
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_TELLS_CONFIGS_SINCE = 5


async def handle(broker: "Broker", message: CreateTopicsRequest, request: Request) -> CreateTopicsResponse:
    limit = TimeLimit(message.timeout_ms)
    times: Counter[str] = Counter()
    partition_count, turn = 0, Turn()
    for asked in message.topics:
        times[asked.name] += 1
        partition_count += _partition_count(broker, asked)
        await turn.pause()
    too_many = partition_count > PARTITIONS_AT_ONCE_MAX
    results: dict[str, CreatableTopicResult] = {}
    configs = _Configs(broker.config) if request.version >= _TELLS_CONFIGS_SINCE else None
    for asked in message.topics:
        await turn.pause()
        try:
            limit.check()
            if too_many:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION, f"A request may be for {PARTITIONS_AT_ONCE_MAX} partitions, not more."
                )
            if times[asked.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request twice.")
            topic = _decide(broker, asked, message.validate_only)
            results[asked.name] = _created(topic, [] if configs is None else configs.of(topic))
        except EXPECTED as error:
            results[asked.name] = _refused(asked.name, error)
    for name, result in results.items():
        if result.error_code == ErrorCode.NONE:
            try:
                await limit.wait_for(broker.topic_made(name))
            except EXPECTED as error:
                results[name] = _refused(name, error)
    return CreateTopicsResponse(topics=list(results.values()))


def _partition_count(broker: "Broker", asked: CreatableTopic) -> int:
    """At least one: what cannot be must be told, too."""
    count = len(asked.assignments) or asked.num_partitions
    return max(1, broker.config["num.partitions"] if count == -1 else count)


def _decide(broker: "Broker", asked: CreatableTopic, validate_only: bool) -> Topic:
    """Of several things that are wrong the first is told, in Kafka's order: the name, options, replicas that cannot be,
    partitions that cannot be, more replicas than brokers."""
    broker.topics.check_new(asked.name)
    overrides = {}
    for config in asked.configs:
        if config.value is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{config.name} has no value.")
        overrides[config.name] = config.value
    broker.catalogue.check_options(overrides)
    partition_count, replication_factor = asked.num_partitions, asked.replication_factor
    if asked.assignments:
        if partition_count != -1 or replication_factor != -1:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, "With assignments, the number of partitions and of replicas must be -1."
            )
        partition_count = len(asked.assignments)
        _check_assignments(broker, asked.assignments)
    elif replication_factor not in (-1, 1):
        if replication_factor > 1 and partition_count != -1:
            check_partition_count(partition_count)
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} with one broker: only 1 is possible.",
        )
    return broker.catalogue.create(asked.name, partition_count, overrides, validate_only=validate_only)


def _check_assignments(broker: "Broker", assignments: list[CreatableReplicaAssignment]) -> None:
    if sorted(one.partition_index for one in assignments) != list(range(len(assignments))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Assignments must number the partitions from 0, each once."
        )
    for one in assignments:
        check_replicas(broker, one.broker_ids)


def check_replicas(broker: "Broker", broker_ids: list[int]) -> None:
    if broker_ids != [broker.node_id]:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The only broker here is {broker.node_id}: each partition has one replica, there; not {broker_ids}.",
        )


class _Configs:
    """As they are in force for each topic. Most topics of a request have the same."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._known: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}

    def of(self, topic: Topic) -> list[CreatableTopicConfigs]:
        overrides = frozenset(topic.overrides.items())
        if overrides not in self._known:
            self._known[overrides] = [
                CreatableTopicConfigs(option.row.name, option.value, config_source=option.source)
                for option in config_view.topic_options(self._config, topic.overrides)
            ]
        return self._known[overrides]


def _created(topic: Topic, configs: list[CreatableTopicConfigs]) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=topic.partition_count,
        replication_factor=1,
        configs=configs,
    )


def _refused(name: str, error: Exception) -> CreatableTopicResult:
    code, text = error_of(error)
    return CreatableTopicResult(name=name, error_code=code, error_message=text)


API = declared(SPEC, handle)
