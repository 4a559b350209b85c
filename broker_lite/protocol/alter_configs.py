"""AlterConfigs, key 33. v2: flexible. What is not named is given back to its default."""

from pylog.broker_lite.protocol.schema import array, boolean, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class AlterableConfig:
    name: str = string()
    value: str | None = string(null_since=0)


@message
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@message
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    resource_type: int = int8()
    resource_name: str = string()


@message
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


SPEC = ApiSpec("AlterConfigs", 33, 0, 2, 2, AlterConfigsRequest, AlterConfigsResponse)
