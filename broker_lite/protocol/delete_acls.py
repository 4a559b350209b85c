"""DeleteAcls, key 31. v1: kinds of patterns. v2: flexible. v3: resources of users."""

from pylog.broker_lite.protocol.schema import array, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

LITERAL = 3


@message
class DeleteAclsFilter:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(null_since=0)
    pattern_type_filter: int = int8(LITERAL)
    principal_filter: str | None = string(null_since=0)
    host_filter: str | None = string(null_since=0)
    operation: int = int8()
    permission_type: int = int8()


@message
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@message
class DeleteAclsMatchingAcl:
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class DeleteAclsFilterResult:
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message
class DeleteAclsResponse:
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


SPEC = ApiSpec("DeleteAcls", 31, 1, 3, 2, DeleteAclsRequest, DeleteAclsResponse)
