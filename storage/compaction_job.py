"""One run of the cleaner over one log, in steps that different threads take.

    clean         any thread, takes long: the cleaner writes `.cleaned` files, and nothing else changes
    begin         the owner: False if the log has changed meanwhile, and the run was for nothing
    put_in_place  any thread: renames, each step on the disk before the next (see `swap`)
    finish        the owner: the log reads the new segments

A crash between or within any two leaves the old segments or the new ones.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pylog.storage import swap
from pylog.storage.compaction import CleaningPlan, CleaningResult, Dirt, LastBatch
from pylog.storage.errors import CleanerFailed, StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.ports import FileSystem
from pylog.storage.producers import snapshot_name

_log = logging.getLogger(__name__)


class Cleaner(Protocol):
    """A run of the cleaner that has begun."""

    def wait(self) -> CleaningResult: ...

    def stop(self) -> None: ...


StartCleaner = Callable[[CleaningPlan], Cleaner]


def plan_for(log: PartitionLog, dirt: Dirt, now_ms: int, dedupe_buffer_bytes: int) -> CleaningPlan:
    config = log.config
    segments = [segment for segment in log.segments() if segment.base_offset < dirt.end_offset]
    return CleaningPlan(
        directory=log.directory,
        segments=tuple((segment.base_offset, segment.size_bytes) for segment in segments),
        first_dirty_offset=dirt.first_dirty_offset,
        end_offset=dirt.end_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_interval_bytes=config.index_interval_bytes,
        index_bytes_max=config.index_bytes_max,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        producers=tuple(
            LastBatch(view.producer_id, view.epoch, view.last_data_offset) for view in log.producers.views()
        ),
        aborted=tuple(log.aborted_transactions(segments[0].base_offset, dirt.end_offset)),
    )


class CompactionJob:
    def __init__(
        self,
        log: PartitionLog,
        plan: CleaningPlan,
        files: FileSystem,
        start: StartCleaner,
        *,
        cleaned: Callable[[int], None],
        bury: Callable[[Path], None],
        give_up: Callable[[Exception], None],
    ) -> None:
        """`cleaned` is told how far the log is clean now, `bury` of each file to be removed, `give_up` why another
        run on this log would be of no use."""
        self.log = log
        self.plan = plan
        self.result: CleaningResult | None = None
        self._files = files
        self._start = start
        self._cleaner: Cleaner | None = None
        self._stopped = False
        self._cleaned = cleaned
        self._bury = bury
        self._give_up = give_up
        self._shape = log.shape

    @property
    def _groups(self) -> list[list[int]]:
        assert self.result is not None
        return [list(group.old_base_offsets) for group in self.result.groups]

    def clean(self) -> None:
        cleaner = self._cleaner = self._start(self.plan)
        if self._stopped:  # before it began
            cleaner.stop()
        try:
            self.result = cleaner.wait()
        except CleanerFailed as error:  # it was killed, or has a bug: another run may do better
            if not self._stopped:
                _log.error("%s", error)
            raise
        except StorageError as error:
            _log.error("%s cannot be compacted: %s", self.log.directory, error)
            self._give_up(error)
            raise

    def stop(self) -> None:
        """From another thread: `clean` raises, also if it has yet to begin."""
        self._stopped = True
        if self._cleaner is not None:
            self._cleaner.stop()

    def begin(self) -> bool:
        return self.log.begin_swap(self._shape, [base for group in self._groups for base in group])

    def put_in_place(self) -> None:
        assert self.result is not None
        directory = self.plan.directory
        try:
            for first, *_ in self._groups:
                swap.promote(directory, first, self._files)
            for first, *others in self._groups:
                for base_offset in others:
                    for path in swap.set_deleted(directory, base_offset, self._files):
                        self._bury(path)
                    self._files.remove(directory / snapshot_name(base_offset))
                swap.take_place(directory, first, self._files)
            self._files.sync(directory)
            self._cleaned(self.result.cleaned_until)
        except OSError as error:
            self.log.fail_swap(error)
            raise

    def finish(self) -> None:
        self.log.finish_swap(self._groups)

    def run(self) -> bool:
        """All steps at once; False if the log had changed meanwhile."""
        self.clean()
        if not self.begin():
            return False
        self.put_in_place()
        self.finish()
        return True
