"""OffsetFetch, key 9. v2: null asks for all topics, an error for the whole group. v3: throttle. v5: leader epoch.
v6: flexible. v7: only offsets that no transaction can still change. v8: many groups at once. v9: member and epoch.
v10: topics by id."""

from uuid import UUID

from pylog.broker_lite.protocol.schema import array, boolean, int16, int32, int64, message, string, uuid
from pylog.broker_lite.protocol.spec import ApiSpec

IDS_SINCE = 10


@message
class OffsetFetchRequestTopic:
    name: str = string(until=IDS_SINCE - 1)
    topic_id: UUID = uuid(since=IDS_SINCE)
    partition_indexes: list[int] = array(int32)


@message
class OffsetFetchRequestGroup:
    group_id: str = string()
    member_id: str | None = string(None, since=9)
    member_epoch: int = int32(-1, since=9)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, null_since=8)


@message
class OffsetFetchRequest:
    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, null_since=2, until=7)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


@message
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(-1, since=5)
    metadata: str | None = string(null_since=0)
    error_code: int = int16()


@message
class OffsetFetchResponseTopic:
    name: str = string(until=IDS_SINCE - 1)
    topic_id: UUID = uuid(since=IDS_SINCE)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@message
class OffsetFetchResponseGroup:
    group_id: str = string()
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16()


@message
class OffsetFetchResponse:
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)


SPEC = ApiSpec("OffsetFetch", 9, 1, 10, 6, OffsetFetchRequest, OffsetFetchResponse, ids_since=IDS_SINCE)
