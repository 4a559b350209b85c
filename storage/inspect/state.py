"""What is known of a partition while its segments are gone through, one after the other."""

from dataclasses import dataclass, field
from typing import NamedTuple

from pylog.storage.epochs import LeaderEpochs
from pylog.storage.inspect.findings import Severity


class Place(NamedTuple):
    """Where a segment stands in its log."""

    base_offset: int
    complete: bool  # another one follows, or the log was closed: its indexes are as they will be
    severity: Severity  # of what is wrong with its indexes
    end_severity: Severity  # of what is wrong at their very end: the newest entries may be torn, or ahead of the log


@dataclass
class LogState:
    """What is known of a partition while its segments are gone through in order."""

    next_offset: int = 0
    leader_epoch: int = -1
    log_start_offset: int = 0  # the batches below are as good as deleted
    first_offset: int = 0  # where the first segment begins
    cleaned_offset: int | None = None  # below it compaction may have left gaps; None if nobody knows
    torn_from: int | None = None  # a recovery point: what lies behind it may be torn; None if nobody knows
    clean: bool = False  # the log was closed, so nothing can be torn
    compacted: bool = False  # offsets were missing inside a segment, and nothing but compaction takes them out
    interrupted: bool = False  # what comes next does not follow the batch before: something between them is lost
    epochs: LeaderEpochs | None = None
    epochs_begin_late: bool = False  # later than the log, which was noted
    open_transactions: dict[int, int] = field(default_factory=dict)  # producer id -> first offset

    def may_be_torn(self, offset: int, *, last_segment: bool) -> bool:
        """Whether a stop may have torn what stands at this offset. Where no recovery point is known, only the end of
        the last segment may be."""
        if self.clean:
            return False
        return last_segment if self.torn_from is None else offset >= self.torn_from
