"""DescribeCluster, key 60. v0: flexible. v1: brokers or controllers. v2: fenced brokers."""

from pylog.broker_lite.protocol.schema import array, boolean, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

BROKERS, CONTROLLERS = 1, 2
OPERATIONS_NOT_ASKED_FOR = -(1 << 31)


@message
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(BROKERS, since=1)
    include_fenced_brokers: bool = boolean(since=2)


@message
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(None)
    is_fenced: bool = boolean(since=2)


@message
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None)
    endpoint_type: int = int8(BROKERS, since=1)
    cluster_id: str = string()
    controller_id: int = int32(-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(OPERATIONS_NOT_ASKED_FOR)


SPEC = ApiSpec("DescribeCluster", 60, 0, 2, 0, DescribeClusterRequest, DescribeClusterResponse)
