"""Small batches, and what a log holds when it is read from one end to the other."""

from dataclasses import replace
from pathlib import Path

from pylog.storage.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL, BatchHeader, walk
from pylog.storage.disk import DISK
from pylog.storage.log import FileSlice, LogConfig, PartitionLog
from pylog.storage.ports import Clock, FileSystem
from pylog.storage.records import Record, decode_batch, encode_batch
from pylog.storage.recovery import Trust
from pylog.storage.transactions import Marker, encode_marker

START_MS = 1_700_000_000_000


def batch_of(
    count: int = 1,
    *,
    timestamp_ms: int = START_MS,
    value: bytes = b"value",
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int | None = None,
    sequence: int | None = None,
    transactional: bool = False,
) -> bytearray:
    """As a producer sends it: offsets from 0, every record a millisecond after the one before."""
    has_producer = producer_id != NO_PRODUCER_ID
    return encode_batch(
        [Record(n, timestamp_ms + n, b"key", value) for n in range(count)],
        codec=codec,
        attributes=TRANSACTIONAL if transactional else 0,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_epoch is not None else 0 if has_producer else NO_PRODUCER_EPOCH,
        base_sequence=sequence if sequence is not None else 0 if has_producer else NO_SEQUENCE,
    )


def marker_of(
    producer_id: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0, timestamp_ms: int = START_MS
) -> bytearray:
    return encode_marker(producer_id, producer_epoch, Marker(commit, coordinator_epoch), timestamp_ms)


def committed(log: PartitionLog, batches: bytearray, leader_epoch: int = 0) -> int:
    """Append, and let the high watermark follow, as on a broker that has the only replica; the base offset."""
    appended = log.append(batches, leader_epoch)
    log.advance_high_watermark(log.log_end_offset)
    return appended.base_offset


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
            records += [record for record in decode_batch(data, position) if record.offset >= log.log_start_offset]
            offset = header.next_offset
    return records


def offsets_in(log: PartitionLog) -> list[int]:
    return [record.offset for record in records_in(log)]


def reopened(log: PartitionLog, trust: Trust | None = None, *, clean: bool = False) -> PartitionLog:
    """Closed and opened again; or, if not clean, opened as after kill -9: what waited in memory is lost.

    What the manager's checkpoints would say is said by `trust`."""
    if clean:
        log.close()
    else:
        log.abandon()
    trust = replace(trust or Trust(clean, log_start_offset=log.log_start_offset), clean=clean)
    return PartitionLog(log.directory, log.config, trust, files=log._files, clock=log._clock)


def log_in(
    directory: Path,
    config: LogConfig | None = None,
    *,
    clean: bool = True,
    files: FileSystem = DISK,
    clock: Clock | None = None,
) -> PartitionLog:
    files.make_directories(directory)
    return PartitionLog(directory / "topic-0", config or LogConfig(), Trust(clean=clean), files=files, clock=clock)


def log_names(log: PartitionLog) -> list[str]:
    return sorted(name for name in log._files.sizes_in(log.directory) if name.endswith(".log"))


def base_offsets(log: PartitionLog) -> list[int]:
    """Of its segments, by the names of their files."""
    return [int(name.removesuffix(".log")) for name in log_names(log)]
