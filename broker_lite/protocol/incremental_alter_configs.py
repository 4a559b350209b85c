"""IncrementalAlterConfigs, key 44. v1: flexible. One operation for each option."""

from pylog.broker_lite.protocol.alter_configs import AlterConfigsResourceResponse
from pylog.broker_lite.protocol.schema import array, boolean, int8, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

SET, DELETE, APPEND, SUBTRACT = range(4)  # `config_operation`; the last two are for lists


@message
class IncrementalAlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(null_since=0)


@message
class IncrementalAlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


@message
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@message
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


SPEC = ApiSpec("IncrementalAlterConfigs", 44, 0, 1, 1, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
