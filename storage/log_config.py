"""How one log is kept: Kafka's topic settings, under names of ours (the table of Kafka's names is the broker's)."""

from dataclasses import dataclass

from pylog.storage.batch import HEADER_BYTES
from pylog.storage.index import INT32_MAX

INT64_MAX = 0x7FFFFFFFFFFFFFFF
_DAY_MS = 24 * 60 * 60 * 1000
_WEEK_MS = 7 * _DAY_MS


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1073741824
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10485760
    segment_ms: int = _WEEK_MS
    segment_jitter_ms: int = 0
    log_append_time: bool = False
    delete: bool = True  # cleanup.policy contains "delete"
    compact: bool = False  # cleanup.policy contains "compact"
    retention_ms: int = _WEEK_MS  # -1: for ever
    retention_bytes: int = -1  # -1: no bound
    delete_retention_ms: int = _DAY_MS
    dirty_ratio_min: float = 0.5
    compaction_lag_ms_min: int = 0
    compaction_lag_ms_max: int = INT64_MAX
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    producer_expiration_ms: int = _DAY_MS

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("segment.bytes", self.segment_bytes, HEADER_BYTES, INT32_MAX),
            ("index.interval.bytes", self.index_interval_bytes, 0, INT32_MAX),
            ("segment.index.bytes", self.index_bytes_max, 24, INT32_MAX),  # room for a closing entry of the time index
            ("segment.ms", self.segment_ms, 1, INT64_MAX),
            ("segment.jitter.ms", self.segment_jitter_ms, 0, INT64_MAX),
            ("retention.ms", self.retention_ms, -1, INT64_MAX),
            ("retention.bytes", self.retention_bytes, -1, INT64_MAX),
            ("delete.retention.ms", self.delete_retention_ms, 0, INT64_MAX),
            ("min.cleanable.dirty.ratio", self.dirty_ratio_min, 0, 1),
            ("min.compaction.lag.ms", self.compaction_lag_ms_min, 0, INT64_MAX),
            ("max.compaction.lag.ms", self.compaction_lag_ms_max, 1, INT64_MAX),
            ("flush.messages", self.flush_messages, 1, INT64_MAX),
            ("flush.ms", self.flush_ms, 0, INT64_MAX),
            ("file.delete.delay.ms", self.file_delete_delay_ms, 0, INT64_MAX),
            ("producer.id.expiration.ms", self.producer_expiration_ms, 1, INT64_MAX),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; it has to be between {low} and {high}")
        if self.compaction_lag_ms_min > self.compaction_lag_ms_max:
            raise ValueError(
                f"min.compaction.lag.ms ({self.compaction_lag_ms_min}) is more than "
                f"max.compaction.lag.ms ({self.compaction_lag_ms_max})"
            )
