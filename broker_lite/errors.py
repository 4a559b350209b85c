"""What a client did that cannot be, and the one table from storage's errors to wire codes."""

from collections.abc import Sequence

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage import errors as storage


class RequestError(Exception):
    """A request, or a part of it, that is answered with an error code and words that help."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RecordsRefused(RequestError):
    """A batch that is refused because of some of its records: (index in the batch, what is wrong with it)."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


ERROR_CODE: dict[type[Exception], ErrorCode] = {
    storage.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    storage.InvalidBatch: ErrorCode.INVALID_RECORD,
    storage.UnsupportedBatch: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    storage.UnsupportedCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    storage.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    storage.BatchLargerThanSegment: ErrorCode.RECORD_LIST_TOO_LARGE,
    storage.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    storage.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage.StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    storage.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    storage.LogOffline: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.LogClosed: ErrorCode.KAFKA_STORAGE_ERROR,  # the broker is stopping
    storage.LogBusy: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.DamagedSegment: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.DamagedFile: ErrorCode.KAFKA_STORAGE_ERROR,
}


# What may go wrong while a request is handled, and is told to the client.
EXPECTED = (RequestError, storage.StorageError, OSError)

# What is kept of an error until all is answered: the error itself keeps all the frames that it has passed.
Told = tuple[ErrorCode, str | None]
NOTHING_WRONG: Told = (ErrorCode.NONE, None)


def error_of(error: Exception) -> tuple[ErrorCode, str]:
    """(wire code, message) of an expected error; an unexpected one is raised again."""
    if isinstance(error, RequestError):
        return error.code, error.message
    if isinstance(error, OSError):  # the disk: full, failing, gone
        return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    code = ERROR_CODE.get(type(error))
    if code is None:
        raise error
    return code, str(error)
