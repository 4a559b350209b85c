"""DescribeLogDirs, key 35. v1: baseline. v2: flexible. v3: an error for all. v4: room on the volume. v5: cordoned."""

from pylog.broker_lite.protocol.schema import array, boolean, int16, int32, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array(int32)


@message
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, null_since=0)


@message
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@message
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@message
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(-1, since=4)
    usable_bytes: int = int64(-1, since=4)
    is_cordoned: bool = boolean(since=5)


@message
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(since=3)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


SPEC = ApiSpec("DescribeLogDirs", 35, 1, 5, 2, DescribeLogDirsRequest, DescribeLogDirsResponse)
