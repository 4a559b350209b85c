"""DeleteGroups, key 42. v1: same. v2: flexible."""

from pylog.broker_lite.protocol.schema import array, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class DeleteGroupsRequest:
    groups_names: list[str] = array(string)


@message
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@message
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


SPEC = ApiSpec("DeleteGroups", 42, 0, 2, 2, DeleteGroupsRequest, DeleteGroupsResponse)
