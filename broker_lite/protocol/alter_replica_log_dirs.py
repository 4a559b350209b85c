"""AlterReplicaLogDirs, key 34. v1: baseline. v2: flexible."""

from pylog.broker_lite.protocol.schema import array, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class AlterReplicaLogDirTopic:
    name: str = string()
    partitions: list[int] = array(int32)


@message
class AlterReplicaLogDir:
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@message
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@message
class AlterReplicaLogDirTopicResult:
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


SPEC = ApiSpec("AlterReplicaLogDirs", 34, 1, 2, 2, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
