"""DescribeQuorum, key 55. The one node votes, leads, and has all there is of the metadata log."""

from typing import TYPE_CHECKING

from pylog.broker_lite import event_log
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.machines.topics import CLUSTER_METADATA
from pylog.broker_lite.protocol.describe_quorum import (
    SPEC,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumNode,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: DescribeQuorumRequest, request: Request) -> Steps[DescribeQuorumResponse]:
    """As with Kafka, whoever asks for anything else beside it is told nothing."""
    asked = [(topic.topic_name, one.partition_index) for topic in message.topics for one in topic.partitions]
    if asked != [(CLUSTER_METADATA, 0)]:
        response = DescribeQuorumResponse()
        for topic in message.topics:
            described = QuorumTopic(topic.topic_name)
            response.topics.append(described)
            for one in topic.partitions:
                described.partitions.append(_unknown(topic, one.partition_index))
                yield
            yield
        return response
    log = broker.catalogue.log
    now_ms = broker.now_ms()
    itself = ReplicaState(
        broker.node_id,
        log_end_offset=log.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = QuorumPartition(
        leader_id=broker.node_id,
        leader_epoch=event_log.LEADER_EPOCH,
        high_watermark=log.high_watermark,
        current_voters=[itself],
    )
    # No listener is the controller's alone.
    return DescribeQuorumResponse(
        topics=[QuorumTopic(CLUSTER_METADATA, [partition])], nodes=[QuorumNode(broker.node_id)]
    )


def _unknown(topic: DescribeQuorumTopic, index: int) -> QuorumPartition:
    return QuorumPartition(
        index,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"The quorum is that of {CLUSTER_METADATA}-0 alone, and not of {topic.topic_name}-{index}.",
    )


API = declared(SPEC, handle)
