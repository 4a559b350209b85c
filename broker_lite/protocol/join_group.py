"""JoinGroup, key 11. v1: rebalance timeout. v2: throttle. v3: same. v4: a member asks for its id first.
v5: static members. v6: flexible. v7: protocol type in the answer. v8: reason. v9: skip assignment."""

from pylog.broker_lite.protocol.schema import array, boolean, data, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

MEMBER_ID_REQUIRED_SINCE = 4
PROTOCOL_NAME_NULL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


@message
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = data()


@message
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(-1, since=1)
    member_id: str = string()
    group_instance_id: str | None = string(None, since=5)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(None, since=8)


@message
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string(None, since=5)
    metadata: bytes = data()


@message
class JoinGroupResponse:
    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(-1)
    protocol_type: str | None = string(None, since=7)
    protocol_name: str | None = string(null_since=PROTOCOL_NAME_NULL_SINCE)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


SPEC = ApiSpec("JoinGroup", 11, 0, 9, 6, JoinGroupRequest, JoinGroupResponse)
