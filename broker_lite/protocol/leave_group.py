"""LeaveGroup, key 13. v1: throttle. v2: same. v3: many members at once, static ones by their instance.
v4: flexible. v5: reason."""

from pylog.broker_lite.protocol.schema import array, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

MANY_MEMBERS_SINCE = 3


@message
class MemberIdentity:
    member_id: str = string()
    group_instance_id: str | None = string(None)
    reason: str | None = string(None, since=5)


@message
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=MANY_MEMBERS_SINCE)


@message
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = string(null_since=3)
    error_code: int = int16()


@message
class LeaveGroupResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=MANY_MEMBERS_SINCE)


SPEC = ApiSpec("LeaveGroup", 13, 0, 5, 4, LeaveGroupRequest, LeaveGroupResponse)
