"""What can be wrong with a batch, a file or a request for bytes. The broker maps these to wire codes."""

from pathlib import Path


class StorageError(Exception):
    """Base of everything this layer raises on purpose."""


class CorruptBatch(StorageError):
    """The bytes are not a record batch, or its CRC does not match."""


class InvalidBatch(StorageError):
    """The bytes are intact, but what they say cannot be (count, offset deltas, codec)."""


class UnsupportedBatch(StorageError):
    """A batch of a format that is not ours to read: an old magic, an unknown codec."""


class UnsupportedCodec(UnsupportedBatch):
    """The batch is compressed in a way that nobody here knows."""


class BatchTooLarge(StorageError):
    """A batch, or what it decompresses to, is over its limit."""


class BatchLargerThanSegment(BatchTooLarge):
    """No segment of this log can hold it."""


class OffsetOutOfRange(StorageError):
    """The log does not hold this offset."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is not in [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class DataDirectoryInUse(StorageError):
    """Another process holds the lock of this data directory."""


class LogClosed(StorageError):
    """The log was closed or deleted while somebody still held it."""


class InvalidTimestamp(StorageError):
    """A batch whose timestamps cannot be, or are not its sender's to set."""


class LogOffline(StorageError):
    """The disk under this log failed, or what is on it cannot be trusted. Only a restart tries again."""


class DamagedSegment(StorageError):
    """Bytes that were once good no longer are. Nothing was cut: what follows may still be wanted."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path}: damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class DamagedFile(StorageError):
    """A checkpoint, a snapshot or an index of transactions that cannot be trusted. The log can tell it all again."""

    def __init__(self, path: Path, place: str, reason: str) -> None:
        super().__init__(f"{path}: damaged at {place}: {reason}")
        self.path = path
        self.place = place  # "byte 34", "line 3"
        self.reason = reason


class StaleProducerEpoch(StorageError):
    """A newer instance of this producer has written, or its transaction was ended over its head."""


class OutOfOrderSequence(StorageError):
    """The batch does not follow the producer's last one: something in between was lost."""


class InvalidTransactionState(StorageError):
    """The producer has a transaction open here, and this batch is not part of it."""


class TransactionCoordinatorFenced(StorageError):
    """The marker comes from a coordinator that has been replaced since."""


class LogBusy(StorageError):
    """Not now: the log is being changed in a way that does not go together with this."""


class DedupeBufferTooSmall(StorageError):
    """Compaction cannot take even one batch: its keys need more memory than `log.cleaner.dedupe.buffer.size`."""


class CleanerFailed(StorageError):
    """The process that compacts a log ended without a result, by no fault of the log that it could name."""
