"""DescribeTopicPartitions, key 75. Topics in the order of their names, up to so many partitions; then a cursor.

An empty list asks for all topics. Asking creates none."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.machines.topics import INTERNAL_TOPICS, Topic
from pylog.broker_lite.operations import TOPIC_OPERATIONS
from pylog.broker_lite.protocol.describe_topic_partitions import (
    SPEC,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Steps, aside, finished

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_SORTED_AT_ONCE_MAX = 1000  # names; more by a thread
PARTITIONS_MAX = 2000  # in one answer, as Kafka's max.request.partition.size.limit


def handle(
    broker: "Broker", message: DescribeTopicPartitionsRequest, request: Request
) -> Steps[DescribeTopicPartitionsResponse] | Awaitable[DescribeTopicPartitionsResponse]:
    if len(message.topics) > _SORTED_AT_ONCE_MAX:
        return _describe_many(broker, message)
    return _describe(broker, message, _names(message) or sorted(broker.topics.by_name))


async def _describe_many(broker: "Broker", message: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return await finished(_describe(broker, message, await aside(_names, message)))


def _names(message: DescribeTopicPartitionsRequest) -> list[str]:
    return sorted({topic.name for topic in message.topics})


def _describe(
    broker: "Broker", message: DescribeTopicPartitionsRequest, names: list[str]
) -> Steps[DescribeTopicPartitionsResponse]:
    start = message.cursor or Cursor("", 0)
    if start.partition_index < 0 or (message.cursor and message.topics and start.topic_name not in names):
        found = [
            DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, topic.name) for topic in message.topics
        ]
        return DescribeTopicPartitionsResponse(topics=found)
    room = max(1, min(message.response_partition_limit, PARTITIONS_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        yield
        if name < start.topic_name:
            continue
        topic = broker.topics.by_name.get(name)
        if topic is None:
            missing = DescribeTopicPartitionsResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            missing.topic_authorized_operations = TOPIC_OPERATIONS
            response.topics.append(missing)
            continue
        first = start.partition_index if name == start.topic_name else 0
        if room == 0:
            response.next_cursor = Cursor(name, first)
            break
        end = min(topic.partition_count, first + room)
        response.topics.append(_topic(broker, topic, range(first, end)))
        room -= max(0, end - first)
        if end < topic.partition_count:
            response.next_cursor = Cursor(name, end)
            break
    return response


def _topic(broker: "Broker", topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, topic, index) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(broker: "Broker", topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
    there = broker.is_online(topic.name, index)
    node = broker.node_id
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if there else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=node if there else -1,
        leader_epoch=topic.leader_epoch,
        replica_nodes=[node],
        isr_nodes=[node],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[] if there else [node],
    )


API = declared(SPEC, handle)
