"""ElectLeaders, key 43. v1: kinds of elections, an error for all. v2: flexible."""

from pylog.broker_lite.protocol.schema import array, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

PREFERRED, UNCLEAN = 0, 1


@message
class ElectLeadersTopic:
    topic: str = string()
    partitions: list[int] = array(int32)


@message
class ElectLeadersRequest:
    election_type: int = int8(since=1)
    topic_partitions: list[ElectLeadersTopic] | None = array(ElectLeadersTopic, null_since=0)
    timeout_ms: int = int32(60_000)


@message
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None)


@message
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


SPEC = ApiSpec("ElectLeaders", 43, 0, 2, 2, ElectLeadersRequest, ElectLeadersResponse)
