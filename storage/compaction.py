"""When a log is compacted, and what of it: decisions, and the plain values that go to the cleaner and come back.

A compacted log has a clean head, in which a run has left one record a key (and the tombstones and markers that wait
for their time), and behind `first_dirty_offset` a dirty tail. A run notes the latest offset of every key of the tail,
as far as its buffer goes, and rewrites all segments up to there. The active segment, everything behind the last
stable offset and what is younger than `min.compaction.lag.ms` stay as they are. Whole segments only.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from pylog.storage.batch import HEADER_BYTES
from pylog.storage.index import INT32_MAX, OFFSET_ENTRY, TIME_ENTRY
from pylog.storage.log_config import INT64_MAX, LogConfig
from pylog.storage.ports import FileSystem
from pylog.storage.swap import CLEANED
from pylog.storage.transactions import AbortedTransaction
from pylog.storage.views import SegmentView

_Name = TypeVar("_Name", bound=Hashable)

# -- when


class Dirt(NamedTuple):
    """What could be compacted of a log: its segments before `end_offset`, of which those that reach behind
    `first_dirty_offset` count as dirty."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    due: bool

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)


def dirt_of(
    segments: Sequence[SegmentView],
    config: LogConfig,
    now_ms: int,
    *,
    cleaned_until: int,
    log_start_offset: int,
    last_stable_offset: int,
    first_timestamp_ms: Callable[[int], int],
) -> Dirt:
    """`segments`: all of the log, the active one last. `cleaned_until`: as the checkpoint has it, 0 without one.
    `first_timestamp_ms`: that of the first batch of the segment with this base offset, which is asked for only where
    `max.compaction.lag.ms` is set.

    Tombstones and markers whose time has come do not make a log due: they go with the next run that something new
    brings about, as with Kafka."""
    first_dirty_offset = cleaned_until
    if not log_start_offset <= first_dirty_offset <= segments[-1].next_offset:
        first_dirty_offset = log_start_offset  # the log was cut, or lost its head, since
    end_offset = segments[-1].base_offset
    young_ms = now_ms - config.compaction_lag_ms_min if config.compaction_lag_ms_min > 0 else INT64_MAX
    clean_bytes = 0
    dirty: list[SegmentView] = []
    for segment, following in pairwise(segments):
        if following.base_offset <= first_dirty_offset:
            clean_bytes += segment.size_bytes
        elif following.base_offset > last_stable_offset or segment.max_timestamp_ms > young_ms:
            end_offset = segment.base_offset
            break
        else:
            dirty.append(segment)
    dirt = Dirt(
        first_dirty_offset,
        max(first_dirty_offset, end_offset),
        clean_bytes,
        sum(segment.size_bytes for segment in dirty),
        due=False,
    )
    if not dirt.dirty_bytes:
        return dirt
    overdue = False
    if config.compaction_lag_ms_max < INT64_MAX:
        times_ms = [first_timestamp_ms(segment.base_offset) for segment in dirty]
        overdue = any(0 < time_ms < now_ms - config.compaction_lag_ms_max for time_ms in times_ms)
    return dirt._replace(due=overdue or dirt.ratio > config.dirty_ratio_min)


def dirtiest(logs: Mapping[_Name, Dirt]) -> _Name | None:
    """Which of the logs that are due comes first."""
    return max((name for name, dirt in logs.items() if dirt.due), key=lambda name: logs[name].ratio, default=None)


# -- what


class LastBatch(NamedTuple):
    """Of a producer that may still write: what its next sequence number and its fencing are checked against."""

    producer_id: int
    producer_epoch: int
    last_data_offset: int  # -1: only markers are left of it


class CleanedGroup(NamedTuple):
    """One new segment, with the base offset of the first old one it takes the place of."""

    base_offset: int
    old_base_offsets: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """One run. All plain values: the cleaner is a process of its own.

    `segments` are (base offset, size in bytes), the log's first one first, without a gap up to `end_offset`, the base
    offset of the one behind them: a transaction's marker can be judged only by who has seen all of its records.
    `aborted` are the aborted transactions that touch them, also those whose markers stand behind them.
    """

    directory: Path
    segments: tuple[tuple[int, int], ...]
    first_dirty_offset: int
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    index_bytes_max: int
    dedupe_buffer_bytes: int
    producers: tuple[LastBatch, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()

    def to_json(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(values | {"directory": str(self.directory)})

    @classmethod
    def from_json(cls, text: str | bytes) -> "CleaningPlan":
        values = json.loads(text)
        values["directory"] = Path(values["directory"])
        values["segments"] = tuple((base_offset, size_bytes) for base_offset, size_bytes in values["segments"])
        values["producers"] = tuple(LastBatch(*last) for last in values["producers"])
        values["aborted"] = tuple(AbortedTransaction(*transaction) for transaction in values["aborted"])
        return cls(**values)

    @property
    def start_offset(self) -> int:
        return self.segments[0][0] if self.segments else self.end_offset

    def next_offset(self, number: int) -> int:
        """Behind the last offset of this segment."""
        return self.segments[number + 1][0] if number + 1 < len(self.segments) else self.end_offset


class CleaningResult(NamedTuple):
    groups: tuple[CleanedGroup, ...]
    cleaned_until: int  # the new first dirty offset; below the plan's end if the buffer held no more keys
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    tombstones_left: int


def grouped(plan: CleaningPlan, cleaned_until: int) -> list[list[int]]:
    """The numbers of the segments that begin before `cleaned_until`, in groups that become one segment each: so that
    segments do not get smaller and smaller. No group is larger than a segment may be, its indexes included."""
    groups: list[list[int]] = []
    group_bytes = 0
    # an entry of the offset index covers more than the interval, and a batch at least
    entry_bytes = max(plan.index_interval_bytes + 1, HEADER_BYTES)
    entries_max = min(plan.index_bytes_max // OFFSET_ENTRY.size, plan.index_bytes_max // TIME_ENTRY.size - 1)
    bytes_max = min(plan.segment_bytes, entries_max * entry_bytes)
    for number, (base_offset, size_bytes) in enumerate(plan.segments):
        if base_offset >= cleaned_until:
            break
        if (
            groups
            and group_bytes + size_bytes <= bytes_max
            and plan.next_offset(number) - 1 - plan.segments[groups[-1][0]][0] <= INT32_MAX
        ):
            groups[-1].append(number)
            group_bytes += size_bytes
        else:
            groups.append([number])
            group_bytes = size_bytes
    return groups


def remove_cleaned(directory: Path, files: FileSystem) -> None:
    """What a run has left that did not come to its end."""
    for name in files.sizes_in(directory):
        if name.endswith(CLEANED):
            files.remove(directory / name)
