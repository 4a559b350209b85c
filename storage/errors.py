"""What can be wrong with a batch, a file or a request for bytes. The broker maps these to wire codes."""


class StorageError(Exception):
    """Base of everything this layer raises on purpose."""


class CorruptBatch(StorageError):
    """The bytes are not a record batch, or its CRC does not match."""


class InvalidBatch(StorageError):
    """The bytes are intact, but what they say cannot be (count, offset deltas, codec)."""


class UnsupportedBatch(StorageError):
    """A batch of a format that is not ours to read: an old magic, an unknown codec."""


class BatchTooLarge(StorageError):
    """A batch, or what it decompresses to, is over its limit."""


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
