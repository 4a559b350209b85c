"""IncrementalAlterConfigs, key 44. Each resource is changed as a whole, or not at all."""

from functools import partial
from typing import TYPE_CHECKING

from pylog.broker_lite import config_changes, config_resources, logger_levels
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.apis.alter_configs import changed_each
from pylog.broker_lite.config_changes import Operation
from pylog.broker_lite.protocol.incremental_alter_configs import (
    SPEC,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(
    broker: "Broker", message: IncrementalAlterConfigsRequest, request: Request
) -> IncrementalAlterConfigsResponse:
    def change(resource: IncrementalAlterConfigsResource) -> None:
        kind, name = resource.resource_type, resource.resource_name
        config_changes.check_count(resource.configs)
        operations = [Operation(one.name, one.config_operation, one.value) for one in resource.configs]
        if kind == config_resources.LOGGER:
            config_resources.check_node(broker, name, all_brokers=False)
            logger_levels.change(operations, validate_only=message.validate_only)
        else:
            decide = partial(config_changes.changed, operations)
            config_resources.change(broker, kind, name, decide, validate_only=message.validate_only)

    return IncrementalAlterConfigsResponse(responses=await changed_each(broker, message.resources, change))


API = declared(SPEC, handle)
