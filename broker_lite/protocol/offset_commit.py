"""OffsetCommit, key 8. v3: throttle. v5: no retention. v6: leader epoch. v7: static members. v8: flexible.
v9: a group that is not there is named as such. v10: topics by id."""

from uuid import UUID

from pylog.broker_lite.protocol.schema import array, int16, int32, int64, message, string, uuid
from pylog.broker_lite.protocol.spec import ApiSpec

GROUP_NOT_FOUND_SINCE = 9
RETENTION_OF_THE_BROKER = -1
IDS_SINCE = 10


@message
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(-1, since=6)
    committed_metadata: str | None = string(None)


@message
class OffsetCommitRequestTopic:
    name: str = string(until=IDS_SINCE - 1)
    topic_id: UUID = uuid(since=IDS_SINCE)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message
class OffsetCommitRequest:
    group_id: str = string()
    generation_id: int = int32(-1, since=1)
    member_id: str = string(since=1)
    group_instance_id: str | None = string(None, since=7)
    retention_time_ms: int = int64(RETENTION_OF_THE_BROKER, since=2, until=4)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@message
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@message
class OffsetCommitResponseTopic:
    name: str = string(until=IDS_SINCE - 1)
    topic_id: UUID = uuid(since=IDS_SINCE)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message
class OffsetCommitResponse:
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


SPEC = ApiSpec("OffsetCommit", 8, 2, 10, 8, OffsetCommitRequest, OffsetCommitResponse, ids_since=IDS_SINCE)
