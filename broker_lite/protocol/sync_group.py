"""SyncGroup, key 14. v1: throttle. v2: same. v3: static members. v4: flexible. v5: protocol type and name."""

from pylog.broker_lite.protocol.schema import array, data, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

PROTOCOL_REQUIRED_SINCE = 5


@message
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = data()


@message
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(None, since=3)
    protocol_type: str | None = string(None, since=5)
    protocol_name: str | None = string(None, since=5)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message
class SyncGroupResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(None, since=5)
    protocol_name: str | None = string(None, since=5)
    assignment: bytes = data()


SPEC = ApiSpec("SyncGroup", 14, 0, 5, 4, SyncGroupRequest, SyncGroupResponse)
