"""InitProducerId, key 22. v1: same. v2: flexible. v3: an id and epoch to go on from. v4, v5: new errors only."""

from pylog.broker_lite.protocol.schema import int16, int32, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class InitProducerIdRequest:
    transactional_id: str | None = string(None)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(-1, since=3)
    producer_epoch: int = int16(-1, since=3)


@message
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(-1)
    producer_epoch: int = int16(-1)


SPEC = ApiSpec("InitProducerId", 22, 0, 5, 2, InitProducerIdRequest, InitProducerIdResponse)
