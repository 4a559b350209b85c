"""When the active segment is too old to be appended to: `segment.ms`, counted as Kafka counts it, in the time of the
batches where they have one, else from when this process began with the segment.

A log to be compacted rolls in time for `max.compaction.lag.ms`: the active segment is never compacted.
"""

import random

from pylog.storage.batch import NO_TIMESTAMP
from pylog.storage.log_config import LogConfig
from pylog.storage.ports import Clock
from pylog.storage.segment import Segment


class Age:
    __slots__ = ("_began_ms", "_clock", "_roll_after_ms", "young_until_ms")

    def __init__(self, config: LogConfig, clock: Clock) -> None:
        self._clock = clock
        self.begin(config)

    def begin(self, config: LogConfig) -> None:
        """With another segment."""
        self._began_ms = self._clock.now_ms()
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        after_ms = min(config.segment_ms, config.compaction_lag_ms_max) if config.compact else config.segment_ms
        jitter_ms = min(config.segment_jitter_ms, after_ms)
        self._roll_after_ms = after_ms - (random.randrange(jitter_ms) if jitter_ms else 0)
        self.young_until_ms = NO_TIMESTAMP  # no batch up to this time makes the segment too old

    def is_too_old(self, active: Segment, timestamp_ms: int) -> bool:
        """For a batch with this timestamp."""
        first_ms = active.first_timestamp_ms
        if first_ms is None:
            if not active.size_bytes:
                return False
            first_ms = active.first_batch_timestamp_ms()
        if first_ms != NO_TIMESTAMP and timestamp_ms != NO_TIMESTAMP:
            self.young_until_ms = first_ms + self._roll_after_ms
            return timestamp_ms - first_ms > self._roll_after_ms
        return self._clock.now_ms() - self._began_ms > self._roll_after_ms
