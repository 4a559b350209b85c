"""The metrics of partitions. Each is looked at once, into a row; families are then written column by column."""

from typing import NamedTuple

from pylog.broker_lite.metrics import families
from pylog.broker_lite.metrics.families import Family
from pylog.broker_lite.metrics.text import labels
from pylog.broker_lite.partition import Partition
from pylog.storage.errors import StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.views import SegmentView


class Row(NamedTuple):
    label_text: str
    bytes_in: int
    batches_in: int
    bytes_out: int
    start_offset: int
    high_watermark: int
    end_offset: int
    size_bytes: int
    segments: int | None
    headroom_bytes: int | None
    headroom_s: float | None


COLUMNS: tuple[tuple[Family, int], ...] = (
    (families.BYTES_IN, 1),
    (families.BATCHES_IN, 2),
    (families.BYTES_OUT, 3),
    (families.START_OFFSET, 4),
    (families.HIGH_WATERMARK, 5),
    (families.END_OFFSET, 6),
    (families.SIZE, 7),
    (families.SEGMENTS, 8),
    (families.HEADROOM_BYTES, 9),
    (families.HEADROOM_SECONDS, 10),
)


def row(topic: str, index: int, partition: Partition, now_ms: int) -> Row:
    log = partition.log
    segments = _segments(log)
    size_bytes = log.size_bytes if segments is None else sum(segment.size_bytes for segment in segments)
    return Row(
        labels(families.BYTES_IN, topic, index),
        partition.bytes_in,
        partition.batches_in,
        partition.bytes_out,
        log.log_start_offset,
        log.high_watermark,
        log.log_end_offset,
        size_bytes,
        None if segments is None else len(segments),
        _headroom_bytes(log, size_bytes),
        None if segments is None else _headroom_s(log, segments, now_ms),
    )


def _segments(log: PartitionLog) -> list[SegmentView] | None:
    """None where a disk would have to be asked: upkeep does that, some time after the start, in a thread."""
    if log.failure is not None or not log.has_looked_at_times:
        return None
    try:
        return log.segments()
    except (StorageError, OSError):  # it is being closed, or has failed just now
        return None


def _headroom_bytes(log: PartitionLog, size_bytes: int) -> int | None:
    config = log.config
    return config.retention_bytes - size_bytes if config.delete and config.retention_bytes >= 0 else None


def _headroom_s(log: PartitionLog, segments: list[SegmentView], now_ms: int) -> float | None:
    """Of the oldest segment; below zero it goes with the next round of `log.retention.check.interval.ms`."""
    config = log.config
    if not config.delete or config.retention_ms < 0 or not segments[0].size_bytes:
        return None
    return (segments[0].max_timestamp_ms + config.retention_ms - now_ms) / 1000
