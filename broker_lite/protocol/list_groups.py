"""ListGroups, key 16. v1: throttle. v2: same. v3: flexible. v4: only those in given states. v5: only of given types."""

from pylog.broker_lite.protocol.schema import array, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class ListGroupsRequest:
    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)


@message
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


@message
class ListGroupsResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


SPEC = ApiSpec("ListGroups", 16, 0, 5, 3, ListGroupsRequest, ListGroupsResponse)
