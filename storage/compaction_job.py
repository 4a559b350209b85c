"""One run of the cleaner over one log, in steps that different threads take.

    clean         any thread, takes long: the cleaner writes `.cleaned` files, and nothing else changes
    begin         the owner: False if the log has changed meanwhile, and the run was for nothing
    put_in_place  any thread: renames, each step on the disk before the next (see `swap`)
    finish        the owner: the log reads the new segments, or the old ones where nothing could be put in place

A crash between or within any two leaves the old segments or the new ones. `discard` (any thread) is for a run that was
for nothing: its files take room.
"""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pylog.storage import swap
from pylog.storage.compaction import CleaningPlan, CleaningResult, Dirt, LastBatch
from pylog.storage.condition import NO_DESCRIPTOR, PASSING
from pylog.storage.errors import CleanerFailed, StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.ports import FileSystem
from pylog.storage.producers import snapshot_name
from pylog.storage.segment import ABORTED_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX

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
        put_off: Callable[[Exception], None],
    ) -> None:
        """`cleaned` is told how far the log is clean now, `bury` of each file to be removed, `give_up` why another
        run on this log would be of no use, `put_off` why it would be of none just now."""
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
        self._put_off = put_off
        self._shape = log.shape
        self._sizes: dict[str, int] | None = None  # of the new files, when they are in place

    @property
    def _groups(self) -> list[list[int]]:
        assert self.result is not None
        return [list(group.old_base_offsets) for group in self.result.groups]

    @property
    def _base_offsets(self) -> list[int]:
        return [base_offset for group in self._groups for base_offset in group]

    def clean(self) -> None:
        try:
            cleaner = self._cleaner = self._start(self.plan)
            if self._stopped:  # before it began
                cleaner.stop()
            self.result = cleaner.wait()
            self._read_ahead()
        except (CleanerFailed, OSError) as error:  # killed, a bug, a full disk: a later run may do better
            if not self._stopped:
                self._put_off(error)
            raise
        except StorageError as error:
            self._give_up(error)
            raise

    def _read_ahead(self) -> None:
        """`begin` looks at all indexes of the old segments, and its thread is not to wait for a disk."""
        for base_offset in self._base_offsets:
            for suffix in (OFFSET_SUFFIX, TIME_SUFFIX, ABORTED_SUFFIX):
                with contextlib.suppress(OSError):  # `begin` will see
                    self._files.read(swap.file_of(self.plan.directory, base_offset, suffix))

    def stop(self) -> None:
        """From another thread: `clean` raises, also if it has yet to begin."""
        self._stopped = True
        if self._cleaner is not None:
            self._cleaner.stop()

    def begin(self) -> bool:
        try:
            return self.log.begin_swap(self._shape, self._base_offsets)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            self._put_off(error)
            return False

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # the next run, or the next start, removes them
            swap.undo(self.plan.directory, [first for first, *_ in self._groups], self._files)

    def put_in_place(self) -> bool:
        """False if there was no room for it just now, and the log stays as it was."""
        assert self.result is not None
        if not self._prepared():
            self.discard()
            return False
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
            sizes: dict[str, int] = {}
            for first, *_ in self._groups:
                sizes |= swap.sizes_of(directory, first, self._files)
        except OSError as error:
            self.log.fail_swap(error)
            raise
        self._sizes = sizes
        try:
            self._cleaned(self.result.cleaned_until)
        except OSError as error:  # all of it is cleaned once more, some time
            self._put_off(error)
        return True

    def _prepared(self) -> bool:
        """What takes room or a descriptor comes before the first file that counts: this can be taken back."""
        syncing = False
        try:
            for first, *_ in self._groups:
                swap.prepare(self.plan.directory, first, self._files)
            syncing = True
            self._files.sync(self.plan.directory)
        except OSError as error:
            if error.errno not in (NO_DESCRIPTOR if syncing else PASSING):
                self.log.fail_swap(error)
                raise
            self._put_off(error)
            return False
        return True

    def finish(self) -> None:
        if self._sizes is None:
            self.log.cancel_swap(self._base_offsets)
        else:
            self.log.finish_swap(self._groups, self._sizes)

    def run(self) -> bool:
        """All steps at once; False if the log stays as it was."""
        self.clean()
        if not self.begin():
            self.discard()
            return False
        in_place = self.put_in_place()
        self.finish()
        return in_place
