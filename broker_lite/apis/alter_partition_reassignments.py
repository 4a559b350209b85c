"""AlterPartitionReassignments, key 45. A partition may be put where it is; there is no other node."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.alter_partition_reassignments import (
    SPEC,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(
    broker: "Broker", message: AlterPartitionReassignmentsRequest, request: Request
) -> Steps[AlterPartitionReassignmentsResponse]:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change
    )
    for topic in message.topics:
        result = ReassignableTopicResponse(topic.name)
        response.responses.append(result)
        for asked in topic.partitions:
            result.partitions.append(_result(broker, topic.name, asked))
            yield
        yield
    return response


def _result(broker: "Broker", topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    try:
        _check(broker, topic, asked)
    except RequestError as error:
        return ReassignablePartitionResponse(asked.partition_index, error.code, error.message)
    return ReassignablePartitionResponse(asked.partition_index)


def _check(broker: "Broker", topic: str, asked: ReassignablePartition) -> None:
    index = asked.partition_index
    if not broker.exists(topic, index):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic '{topic}'.")
    if asked.replicas is None:
        raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition is not on its way anywhere.")
    if asked.replicas != [broker.node_id]:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Node {broker.node_id}, once, is all that can have the partition."
        )


API = declared(SPEC, handle)
