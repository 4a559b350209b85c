"""DeleteRecords, key 21. v1: same. v2: flexible."""

from pylog.broker_lite.protocol.schema import array, int16, int32, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

TO_HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


@message
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@message
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@message
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64(NO_LOW_WATERMARK)
    error_code: int = int16()


@message
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


SPEC = ApiSpec("DeleteRecords", 21, 0, 2, 2, DeleteRecordsRequest, DeleteRecordsResponse)
