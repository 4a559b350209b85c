"""DescribeAcls, key 29. v1: kinds of patterns. v2: flexible. v3: resources of users."""

from pylog.broker_lite.protocol.schema import array, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

LITERAL = 3


@message
class DescribeAclsRequest:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(null_since=0)
    pattern_type_filter: int = int8(LITERAL)
    principal_filter: str | None = string(null_since=0)
    host_filter: str | None = string(null_since=0)
    operation: int = int8()
    permission_type: int = int8()


@message
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(LITERAL)
    acls: list[AclDescription] = array(AclDescription)


@message
class DescribeAclsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


SPEC = ApiSpec("DescribeAcls", 29, 1, 3, 2, DescribeAclsRequest, DescribeAclsResponse)
