"""DescribeGroups, key 15. v1: throttle. v2: same. v3: authorized operations. v4: static members. v5: flexible.
v6: a group that is not there is an error, which has words."""

from pylog.broker_lite.protocol.schema import array, boolean, data, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

NOT_FOUND_SINCE = 6
OPERATIONS_NOT_ASKED_FOR = -(1 << 31)


@message
class DescribeGroupsRequest:
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


@message
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string(None, since=4)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = data()
    member_assignment: bytes = data()


@message
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(None, since=6)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(OPERATIONS_NOT_ASKED_FOR, since=3)


@message
class DescribeGroupsResponse:
    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)


SPEC = ApiSpec("DescribeGroups", 15, 0, 6, 5, DescribeGroupsRequest, DescribeGroupsResponse)
