"""Which records have had their time. Pure: what is decided here, the manager does."""

from collections.abc import Sequence

from pylog.storage.log_config import LogConfig
from pylog.storage.views import SegmentView


def start_after_retention(
    segments: Sequence[SegmentView], high_watermark: int, now_ms: int, config: LogConfig
) -> int | None:
    """Where the log is to begin; None if everything stays.

    Whole segments go, the oldest first, as long as they are too old (`retention.ms`, by their latest record) or the
    log is too large without them (`retention.bytes`). What is not committed stays, and an empty segment too."""
    if not config.delete:
        return None
    surplus_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    start = None
    for segment in segments:
        too_old = config.retention_ms >= 0 and now_ms - segment.max_timestamp_ms > config.retention_ms
        surplus_bytes -= segment.size_bytes
        too_large = config.retention_bytes >= 0 and surplus_bytes >= 0
        if not (too_old or too_large) or segment.next_offset > high_watermark or not segment.size_bytes:
            break
        start = segment.next_offset
    return start
