"""OffsetForLeaderEpoch, key 23. v2: the leader epoch that the client knows. v3: replica id. v4: flexible."""

from pylog.broker_lite.protocol.schema import array, int16, int32, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(-1, since=2)
    leader_epoch: int = int32()


@message
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message
class OffsetForLeaderEpochRequest:
    replica_id: int = int32(-2, since=3)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@message
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(-1, since=1)
    end_offset: int = int64(-1)


@message
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32(since=2)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


SPEC = ApiSpec("OffsetForLeaderEpoch", 23, 2, 4, 4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
