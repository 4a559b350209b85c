"""The features of the cluster: what clients may count on.

Each has one level here, so that no update ever changes one: what Kafka offers above it is not there yet, and a client
that was promised it would use it. `metadata.version` is that of the Kafka whose answers these are.
"""

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.errors import ErrorCode

METADATA_VERSION = 30  # Kafka 4.3's
LEVELS = {
    "metadata.version": METADATA_VERSION,
    "kraft.version": 0,  # the voters are what the configuration says
    "group.version": 0,  # classic groups; from 1 on consumers may use the newer protocol
    "transaction.version": 0,  # from 2 on producers have an epoch for each transaction
}
EPOCH = 0  # of the levels that are finalized: they have never changed


def check_update(feature: str, level: int, *, is_known_type: bool) -> None:
    """RequestError: the feature cannot have this level."""
    only = LEVELS.get(feature)
    if not is_known_type:
        wrong = "there is no update of this type"
    elif level < 0:
        wrong = "a level is never below 0"
    elif only is None:
        wrong = "this broker does not have the feature"
    elif level != only:
        wrong = f"this broker has level {only} alone"
    else:
        return
    raise RequestError(ErrorCode.INVALID_UPDATE_VERSION, f"Feature '{feature}' cannot have level {level}: {wrong}.")
