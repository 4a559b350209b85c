"""CreateAcls, key 30. v1: kinds of patterns. v2: flexible. v3: resources of users."""

from pylog.broker_lite.protocol.schema import array, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

LITERAL = 3


@message
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@message
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = string(null_since=0)


@message
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


SPEC = ApiSpec("CreateAcls", 30, 1, 3, 2, CreateAclsRequest, CreateAclsResponse)
