"""UpdateFeatures, key 57. v0: flexible. v1: kinds of changes, validate-only. v2: an error for all alone."""

from pylog.broker_lite.protocol.schema import array, boolean, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

RESULTS_UNTIL = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@message
class FeatureUpdate:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(UPGRADE, since=1)


@message
class UpdateFeaturesRequest:
    timeout_ms: int = int32(60_000)
    feature_updates: list[FeatureUpdate] = array(FeatureUpdate)
    validate_only: bool = boolean(since=1)


@message
class UpdatableFeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(null_since=0)


@message
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=RESULTS_UNTIL)


SPEC = ApiSpec("UpdateFeatures", 57, 0, 2, 0, UpdateFeaturesRequest, UpdateFeaturesResponse)
