"""DescribeCluster, key 60. One broker, which is the controller too."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.operations import CLUSTER_OPERATIONS
from pylog.broker_lite.protocol.describe_cluster import (
    BROKERS,
    CONTROLLERS,
    OPERATIONS_NOT_ASKED_FOR,
    SPEC,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pylog.broker_lite.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: DescribeClusterRequest, request: Request) -> DescribeClusterResponse:
    if message.endpoint_type != BROKERS:
        is_known = message.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"This is a listener for brokers, and not for endpoints of type {message.endpoint_type}.",
        )
    everything = message.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(broker.node_id, *request.endpoint, broker.config["broker.rack"])],
        cluster_authorized_operations=CLUSTER_OPERATIONS if everything else OPERATIONS_NOT_ASKED_FOR,
    )


API = declared(SPEC, handle)
