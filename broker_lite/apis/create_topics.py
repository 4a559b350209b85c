"""CreateTopics, key 19. All topics of a request are decided at once and made together."""

from collections import Counter
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.machines.topics import Topic
from pylog.broker_lite.protocol.create_topics import (
    SPEC,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: CreateTopicsRequest, request: Request) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in message.topics)
    results = []
    for asked in message.topics:
        try:
            if times[asked.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request twice.")
            topic = _decide(broker, asked, message.validate_only)
            results.append(_created(topic, message.validate_only))
        except EXPECTED as error:
            results.append(_refused(asked.name, error))
    for index, result in enumerate(results):
        if result.error_code == ErrorCode.NONE:
            try:
                await broker.topic_made(result.name)
            except EXPECTED as error:
                results[index] = _refused(result.name, error)
    return CreateTopicsResponse(topics=results)


def _decide(broker: "Broker", asked: CreatableTopic, validate_only: bool) -> Topic:
    partition_count, replication_factor = asked.num_partitions, asked.replication_factor
    if asked.assignments:
        if partition_count != -1 or replication_factor != -1:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Give assignments or a number of partitions, not both.")
        partition_count = len(asked.assignments)
        if sorted(one.partition_index for one in asked.assignments) != list(range(partition_count)):
            raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Assignments must number the partitions from 0.")
        if any(one.broker_ids != [broker.node_id] for one in asked.assignments):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The only broker here is {broker.node_id}: assign each partition to it.",
            )
    elif replication_factor not in (-1, 1):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} with one broker: only 1 is possible.",
        )
    overrides = {config.name: config.value for config in asked.configs if config.value is not None}
    return broker.catalogue.create(asked.name, partition_count, overrides, validate_only=validate_only)


def _created(topic: Topic, validate_only: bool) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if validate_only else topic.topic_id,
        num_partitions=topic.partition_count,
        replication_factor=1,
    )


def _refused(name: str, error: Exception) -> CreatableTopicResult:
    code, text = error_of(error)
    return CreatableTopicResult(name=name, error_code=code, error_message=text)


API = declared(SPEC, handle)
