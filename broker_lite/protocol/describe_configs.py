"""DescribeConfigs, key 32. v1: sources and synonyms. v3: types and documentation. v4: flexible."""

from pylog.broker_lite.protocol.schema import array, boolean, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class DescribeConfigsResource:
    """`configuration_keys` null: all of them."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, null_since=0)


@message
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(since=1)
    include_documentation: bool = boolean(since=3)


@message
class DescribeConfigsSynonym:
    name: str = string()
    value: str | None = string(null_since=0)
    source: int = int8()


@message
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(null_since=0)
    read_only: bool = boolean()
    config_source: int = int8(-1, since=1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1)
    config_type: int = int8(since=3)
    documentation: str | None = string(since=3, null_since=0)


@message
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


SPEC = ApiSpec("DescribeConfigs", 32, 1, 4, 4, DescribeConfigsRequest, DescribeConfigsResponse)
