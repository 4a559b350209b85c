"""OffsetDelete, key 47. v0 is all there is, and it is not flexible."""

from pylog.broker_lite.protocol.schema import array, int16, int32, message, string
from pylog.broker_lite.protocol.spec import NEVER_FLEXIBLE, ApiSpec


@message
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@message
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message
class OffsetDeleteRequest:
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@message
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@message
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)


SPEC = ApiSpec("OffsetDelete", 47, 0, 0, NEVER_FLEXIBLE, OffsetDeleteRequest, OffsetDeleteResponse)
