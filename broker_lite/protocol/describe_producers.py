"""DescribeProducers, key 61. v0: flexible."""

from pylog.broker_lite.protocol.schema import array, int16, int32, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class DescribeProducersTopic:
    name: str = string()
    partition_indexes: list[int] = array(int32)


@message
class DescribeProducersRequest:
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


@message
class ProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(-1)
    last_timestamp: int = int64(-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(-1)


@message
class DescribeProducersPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None)
    active_producers: list[ProducerState] = array(ProducerState)


@message
class DescribeProducersTopicResponse:
    name: str = string()
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)


@message
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)


SPEC = ApiSpec("DescribeProducers", 61, 0, 0, 0, DescribeProducersRequest, DescribeProducersResponse)
