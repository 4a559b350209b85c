"""ListConfigResources, key 74. v0: flexible, and of client metrics only. v1: of any type, by default of all."""

from pylog.broker_lite.protocol.schema import array, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

CLIENT_METRICS_TYPE = 16


@message
class ListConfigResourcesRequest:
    resource_types: list[int] = array(int8, since=1)


@message
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8(CLIENT_METRICS_TYPE, since=1)


@message
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


SPEC = ApiSpec("ListConfigResources", 74, 0, 1, 0, ListConfigResourcesRequest, ListConfigResourcesResponse)
