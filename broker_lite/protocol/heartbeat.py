"""Heartbeat, key 12. v1: throttle. v2: same. v3: static members. v4: flexible."""

from pylog.broker_lite.protocol.schema import int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(None, since=3)


@message
class HeartbeatResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()


SPEC = ApiSpec("Heartbeat", 12, 0, 4, 4, HeartbeatRequest, HeartbeatResponse)
