"""FindCoordinator, key 10. v1: key type, throttle, error message. v2: same. v3: flexible. v4: many keys at once.
v5: for transactions. v6: share groups, which are not there."""

from pylog.broker_lite.protocol.schema import array, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

GROUP = 0
TRANSACTION = 1
SHARE = 2


@message
class FindCoordinatorRequest:
    key: str = string(until=3)
    key_type: int = int8(GROUP, since=1)
    coordinator_keys: list[str] = array(string, since=4)


@message
class Coordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None)


@message
class FindCoordinatorResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = string(None, since=1, until=3)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)


SPEC = ApiSpec("FindCoordinator", 10, 0, 6, 3, FindCoordinatorRequest, FindCoordinatorResponse)
