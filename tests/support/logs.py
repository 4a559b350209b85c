"""Small batches, and what a log holds when it is read from one end to the other."""

from pathlib import Path

from pylog.storage.batch import BatchHeader, walk
from pylog.storage.log import FileSlice, LogConfig, PartitionLog
from pylog.storage.records import Record, decode_batch, encode_batch
from pylog.storage.recovery import Trust

START_MS = 1_700_000_000_000


def batch_of(count: int = 1, *, timestamp_ms: int = START_MS, value: bytes = b"value", codec: int = 0) -> bytearray:
    """As a producer sends it: offsets from 0, every record a millisecond after the one before."""
    return encode_batch([Record(n, timestamp_ms + n, b"key", value) for n in range(count)], codec=codec)


def bytes_of(part: FileSlice) -> bytes:
    data = part.file.read_at(part.position, part.length)
    assert len(data) == part.length
    return data


def headers_in(data: bytes) -> list[BatchHeader]:
    headers = [header for _, header in walk(data)]
    assert sum(header.size_bytes for header in headers) == len(data), "a read ends in the middle of a batch"
    return headers


def records_in(log: PartitionLog, bytes_max: int = 1 << 20) -> list[Record]:
    """Every record of the log, read as a consumer reads it."""
    records: list[Record] = []
    offset = log.log_start_offset
    while (part := log.read(offset, bytes_max)) is not None:
        data = bytes_of(part)
        for position, header in walk(data):
            records += decode_batch(data, position)
            offset = header.next_offset
    return records


def reopened(log: PartitionLog, *, clean: bool) -> PartitionLog:
    """Closed and opened again; or, if not clean, opened as after kill -9: what waited in memory is lost."""
    if clean:
        log.close()
    else:
        log.abandon()
    return PartitionLog(log.directory, log.config, Trust(clean=clean))


def log_in(directory: Path, config: LogConfig | None = None, *, clean: bool = True) -> PartitionLog:
    directory.mkdir(exist_ok=True)
    return PartitionLog(directory / "topic-0", config or LogConfig(), Trust(clean=clean))
