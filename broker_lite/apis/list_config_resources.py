"""ListConfigResources, key 74. What DescribeConfigs can be asked for."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.config_resources import BROKER, CLIENT_METRICS, GROUP, LOGGER, TOPIC
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.list_config_resources import (
    SPEC,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(
    broker: "Broker", message: ListConfigResourcesRequest, request: Request
) -> ListConfigResourcesResponse:
    node = str(broker.node_id)
    names: dict[int, list[str]] = {
        TOPIC: sorted(broker.topics.by_name),
        BROKER: [node],
        LOGGER: [node],
        CLIENT_METRICS: [],  # there are none
        GROUP: sorted(broker.topics.group_overrides),
    }
    wanted = [CLIENT_METRICS] if request.version == 0 else message.resource_types or list(names)
    if not names.keys() >= set(wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)  # as Kafka says it
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(name, kind) for kind in dict.fromkeys(wanted) for name in names[kind]]
    )


API = declared(SPEC, handle)
