"""ApiVersions, key 18. v1: throttle. v3: flexible, client software, features. v4: features from level 0.

A client sends its own newest version first. One that is not spoken here is answered with error 35
in the body of v0, which every client reads; the response header never has tags.
"""

from pylog.broker_lite.protocol.schema import array, boolean, int16, int32, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec

SOFTWARE_SINCE = 3
FROM_LEVEL_0_SINCE = 4


@message
class ApiVersionsRequest:
    client_software_name: str = string(since=SOFTWARE_SINCE)
    client_software_version: str = string(since=SOFTWARE_SINCE)


@message
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@message
class SupportedFeatureKey:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@message
class FinalizedFeatureKey:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(-1, since=3, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)


SPEC = ApiSpec("ApiVersions", 18, 0, 4, 3, ApiVersionsRequest, ApiVersionsResponse)
