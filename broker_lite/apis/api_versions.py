"""ApiVersions, key 18. v3: flexible, features. What is not implemented is not in the answer."""

import re
from typing import TYPE_CHECKING

from pylog.broker_lite import features
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.api_versions import (
    FROM_LEVEL_0_SINCE,
    SOFTWARE_SINCE,
    SPEC,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from pylog.broker_lite.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # what may name a client, or its version


def _ranges() -> list[ApiVersion]:
    from pylog.broker_lite.api_table import API_BY_KEY  # the table holds this module too

    ranges = []
    for key, api in sorted(API_BY_KEY.items()):
        advertised_min = api.spec.version_min if api.spec.advertised_min is None else api.spec.advertised_min
        ranges.append(ApiVersion(key, advertised_min, api.spec.version_max))
    return ranges


def handle(broker: "Broker", message: ApiVersionsRequest, request: Request) -> ApiVersionsResponse:
    if request.version >= SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(message.client_software_name) and _SOFTWARE.fullmatch(message.client_software_version)
    ):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    supported = [SupportedFeatureKey(name, level, level) for name, level in features.LEVELS.items()]
    if request.version < FROM_LEVEL_0_SINCE:  # a client of that age takes level 0 for nonsense
        supported = [one for one in supported if one.min_version > 0]
    finalized = [FinalizedFeatureKey(name, level, level) for name, level in features.LEVELS.items() if level > 0]
    return ApiVersionsResponse(
        api_keys=_ranges(),
        supported_features=supported,
        finalized_features_epoch=features.EPOCH,
        finalized_features=finalized,
    )


def unsupported_version() -> bytearray:
    """The body of v0, which a client of any age reads."""
    return SPEC.encode_response(ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, _ranges()), 0)


API = declared(SPEC, handle)
