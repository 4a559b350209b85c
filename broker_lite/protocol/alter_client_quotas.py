"""AlterClientQuotas, key 49. v0: baseline. v1: flexible."""

from pylog.broker_lite.protocol.schema import array, boolean, float64, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class QuotaEntityPart:
    entity_type: str = string()
    entity_name: str | None = string(null_since=0)  # null: whoever has no quota of its own


@message
class QuotaChange:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@message
class AlterClientQuotasEntry:
    entity: list[QuotaEntityPart] = array(QuotaEntityPart)
    ops: list[QuotaChange] = array(QuotaChange)


@message
class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasEntry] = array(AlterClientQuotasEntry)
    validate_only: bool = boolean()


@message
class AlterClientQuotasResult:
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    entity: list[QuotaEntityPart] = array(QuotaEntityPart)


@message
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResult] = array(AlterClientQuotasResult)


SPEC = ApiSpec("AlterClientQuotas", 49, 0, 1, 1, AlterClientQuotasRequest, AlterClientQuotasResponse)
