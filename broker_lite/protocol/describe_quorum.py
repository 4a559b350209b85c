"""DescribeQuorum, key 55. v0: flexible. v1: times of fetches. v2: directories, words of errors, nodes."""

from uuid import UUID

from pylog.broker_lite.protocol.schema import array, int16, int32, int64, message, string, uuid
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class DescribeQuorumPartition:
    partition_index: int = int32()


@message
class DescribeQuorumTopic:
    topic_name: str = string()
    partitions: list[DescribeQuorumPartition] = array(DescribeQuorumPartition)


@message
class DescribeQuorumRequest:
    topics: list[DescribeQuorumTopic] = array(DescribeQuorumTopic)


@message
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: UUID = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(-1, since=1)
    last_caught_up_timestamp: int = int64(-1, since=1)


@message
class QuorumPartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None, since=2)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@message
class QuorumTopic:
    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


@message
class QuorumListener:
    name: str = string()
    host: str = string()
    port: int = int16()  # above 32,767 it is negative here


@message
class QuorumNode:
    node_id: int = int32()
    listeners: list[QuorumListener] = array(QuorumListener)


@message
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string(None, since=2)
    topics: list[QuorumTopic] = array(QuorumTopic)
    nodes: list[QuorumNode] = array(QuorumNode, since=2)


SPEC = ApiSpec("DescribeQuorum", 55, 0, 2, 0, DescribeQuorumRequest, DescribeQuorumResponse)
