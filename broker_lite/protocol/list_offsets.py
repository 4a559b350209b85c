"""ListOffsets, key 2. v1: one offset by timestamp. v2: isolation level, throttle. v4: leader epoch. v5: same.
v6: flexible. v7: the latest timestamp. v8: the first local offset. v9: the last tiered one. v10: a timeout.
v11: the first that waits to be tiered."""

from pylog.broker_lite.protocol.schema import array, int8, int16, int32, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
NO_OFFSET = -1
NO_TIMESTAMP = -1


@message
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32(-1, since=4)
    timestamp: int = int64()


@message
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message
class ListOffsetsRequest:
    replica_id: int = int32(-1)
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10)


@message
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(NO_TIMESTAMP)
    offset: int = int64(NO_OFFSET)
    leader_epoch: int = int32(-1, since=4)


@message
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message
class ListOffsetsResponse:
    throttle_time_ms: int = int32(since=2)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


SPEC = ApiSpec("ListOffsets", 2, 1, 11, 6, ListOffsetsRequest, ListOffsetsResponse)
