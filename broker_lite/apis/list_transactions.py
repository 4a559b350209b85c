"""ListTransactions, key 66. There are none yet; what a filter cannot be is told all the same."""

import re
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.list_transactions import SPEC, ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_PATTERN_CHARACTERS_MAX = 1000
_STATES = {
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
}


def handle(broker: "Broker", message: ListTransactionsRequest, request: Request) -> ListTransactionsResponse:
    if not _is_pattern(message.transactional_id_pattern or ""):
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [state for state in dict.fromkeys(message.state_filters) if state not in _STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)


def _is_pattern(text: str) -> bool:
    if len(text) > _PATTERN_CHARACTERS_MAX:
        return False
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


API = declared(SPEC, handle)
