"""Who may have which quota, and which of them is asked for. Rules and codes are Kafka's.

A quota that nobody would enforce is refused: bytes written and bytes read a second are counted here, and nothing else.
"""

import math
from collections import Counter
from collections.abc import Sequence

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.topics import Entity
from pylog.broker_lite.protocol.alter_client_quotas import QuotaChange, QuotaEntityPart
from pylog.broker_lite.protocol.describe_client_quotas import ANY, DEFAULT, EXACT, QuotaFilter
from pylog.broker_lite.protocol.errors import ErrorCode

PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
_CLIENT_ID, _USER, _IP = "client-id", "user", "ip"
_ENFORCED = {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE}
_NOT_YET = {"request_percentage", "controller_mutation_rate", "connection_creation_rate"}
_RATE_MAX = 1 << 63
_TINY = 1e-6  # Kafka's: so much above a whole number is none


def entity_of(parts: Sequence[QuotaEntityPart]) -> Entity:
    named = {part.entity_type: part.entity_name for part in parts}
    if not named:
        raise _refused("A quota is somebody's: of a client-id, of a user, or of both.")
    for kind, name in named.items():
        if kind == _IP:
            raise _refused("Addresses have no quotas here: nothing would enforce them.")
        if kind not in (_CLIENT_ID, _USER):
            raise _refused(f"There are no quotas of a '{kind}'.")
        if name == "":
            raise _refused(f"The {kind} has no name.")
    return tuple(sorted(named.items()))


def changes_of(operations: Sequence[QuotaChange]) -> dict[str, float | None]:
    twice = [key for key, count in Counter(one.key for one in operations).items() if count > 1]
    if twice:
        raise _refused(f"{twice[0]} is there more than once.")
    return {one.key: None if one.remove else _rate(one.key, one.value) for one in operations}


def _rate(key: str, value: float) -> float:
    if key in _NOT_YET:
        raise _refused(f"{key} is not there yet: nothing would enforce it.")
    if key not in _ENFORCED:
        raise _refused(f"There is no quota '{key}'.")
    if math.isnan(value) or value <= 0 or value >= _RATE_MAX or value - math.floor(value) > _TINY:
        raise _refused(f"{key}={value}: must be a whole number of bytes a second, and more than 0")
    return float(math.floor(value))


def check_filters(filters: Sequence[QuotaFilter]) -> None:
    kinds = Counter(one.entity_type for one in filters)
    for one in filters:
        if not one.entity_type:
            raise _refused("A filter has no type.")
        if kinds[one.entity_type] > 1:
            raise _refused(f"There is more than one filter of '{one.entity_type}'.")
        if one.match_type not in (EXACT, DEFAULT, ANY):
            raise _refused(f"There are no matches of type {one.match_type}.")
        if (one.match is None) == (one.match_type == EXACT):
            raise _refused("A match is exact and has a name, or is not and has none.")
        if one.entity_type not in (_CLIENT_ID, _USER, _IP):
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"There are no quotas of a '{one.entity_type}'.")
    if _IP in kinds and len(kinds) > 1:
        raise _refused("Quotas of addresses are those of nobody else.")


def matches(entity: Entity, filters: Sequence[QuotaFilter], *, strict: bool) -> bool:
    """Strict: of these types, and of no other."""
    parts = dict(entity)
    if strict and len(parts) != len(filters):
        return False
    return all(
        one.entity_type in parts and (one.match_type == ANY or parts[one.entity_type] == one.match) for one in filters
    )


def _refused(text: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, text)
