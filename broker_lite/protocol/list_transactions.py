"""ListTransactions, key 66. v0: flexible. v1: by how long they last. v2: by a pattern of ids."""

from pylog.broker_lite.protocol.schema import array, int16, int32, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class ListTransactionsRequest:
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(-1, since=1)
    transactional_id_pattern: str | None = string(None, since=2)


@message
class TransactionState:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message
class ListTransactionsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)


SPEC = ApiSpec("ListTransactions", 66, 0, 2, 0, ListTransactionsRequest, ListTransactionsResponse)
