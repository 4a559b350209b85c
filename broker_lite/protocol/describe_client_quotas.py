"""DescribeClientQuotas, key 48. v0: baseline. v1: flexible."""

from pylog.broker_lite.protocol.alter_client_quotas import QuotaEntityPart
from pylog.broker_lite.protocol.schema import array, boolean, float64, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

EXACT, DEFAULT, ANY = 0, 1, 2


@message
class QuotaFilter:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(null_since=0)


@message
class DescribeClientQuotasRequest:
    components: list[QuotaFilter] = array(QuotaFilter)
    strict: bool = boolean()


@message
class QuotaValue:
    key: str = string()
    value: float = float64()


@message
class ClientQuotas:
    entity: list[QuotaEntityPart] = array(QuotaEntityPart)
    values: list[QuotaValue] = array(QuotaValue)


@message
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    entries: list[ClientQuotas] | None = array(ClientQuotas, null_since=0)


SPEC = ApiSpec("DescribeClientQuotas", 48, 0, 1, 1, DescribeClientQuotasRequest, DescribeClientQuotasResponse)
