"""UpdateFeatures, key 57. All of them are updated, or none; here each has the one level that it can have."""

from typing import TYPE_CHECKING

from pylog.broker_lite import features
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.update_features import (
    SAFE_DOWNGRADE,
    SPEC,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_TYPES = {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}


def handle(broker: "Broker", message: UpdateFeaturesRequest, request: Request) -> Steps[UpdateFeaturesResponse]:
    try:
        for one in message.feature_updates:
            is_known = one.upgrade_type in _TYPES
            features.check_update(one.feature, one.max_version_level, is_known_type=is_known)
            yield
    except RequestError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=f"Nothing was updated. {error.message}")
    named = dict.fromkeys(one.feature for one in message.feature_updates)
    results = [UpdatableFeatureResult(name, ErrorCode.NONE, None) for name in named]
    return UpdateFeaturesResponse(error_message=None, results=results)


API = declared(SPEC, handle)
