"""Which log is compacted next: the dirtiest of those that are due, and neither given up nor put off.

No log keeps the others from being compacted. One that is damaged is given up until the next start, one whose keys need
more memory until there is more; one whose run failed for another reason is put off, and the others come first.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from pylog.storage import compaction
from pylog.storage.compaction import CleaningPlan, Dirt
from pylog.storage.compaction_job import CompactionJob, StartCleaner, plan_for
from pylog.storage.data_directory import Key
from pylog.storage.errors import DedupeBufferTooSmall, LogClosed, LogOffline, StorageError
from pylog.storage.graveyard import Graveyard
from pylog.storage.homes import Homes
from pylog.storage.log import PartitionLog
from pylog.storage.ports import Clock, FileSystem

_log = logging.getLogger(__name__)

COMPACTION_RETRY_MS = 60_000


class CompactionSchedule:
    def __init__(
        self,
        logs: Mapping[Key, PartitionLog],
        homes: Homes,
        graveyard: Graveyard,
        start_cleaner: StartCleaner,
        dedupe_buffer_bytes: int,
        files: FileSystem,
        clock: Clock,
    ) -> None:
        """`logs` are the open ones; they come and go."""
        self.uncleanable: dict[Key, Exception] = {}  # logs that were given up, most of them damaged
        self._put_off: dict[Key, int] = {}  # logs whose compaction failed, and when to try again
        self._logs = logs
        self._homes = homes
        self._graveyard = graveyard
        self._start_cleaner = start_cleaner
        self.dedupe_buffer_bytes = dedupe_buffer_bytes
        self._files = files
        self._clock = clock

    def forget(self, key: Key) -> None:
        """The log is deleted; another one may have its name."""
        self.uncleanable.pop(key, None)
        self._put_off.pop(key, None)

    def give_memory(self, dedupe_buffer_bytes: int) -> None:
        """For the next run. More of it may be enough for logs that were given up for its want."""
        if dedupe_buffer_bytes > self.dedupe_buffer_bytes:
            for key, error in list(self.uncleanable.items()):
                if isinstance(error, DedupeBufferTooSmall):
                    self.uncleanable.pop(key, None)
        self.dedupe_buffer_bytes = dedupe_buffer_bytes

    def next(self) -> CompactionJob | None:
        now_ms = self._clock.now_ms()
        compacted = [item for item in list(self._logs.items()) if item[1].config.compact]  # a few of thousands
        logs = {key: log for key, log in compacted if self._may_be_compacted(key, log, now_ms)}
        dirt: dict[Key, Dirt] = {}
        for key, log in logs.items():
            home = self._homes.get(key)
            if home is not None:
                with self._or_another(key, log):
                    dirt[key] = _dirt_of(log, home.cleaned_until(key), now_ms)
        while (dirtiest := compaction.dirtiest(dirt)) is not None:
            log = logs[dirtiest]
            with self._or_another(dirtiest, log):
                return self._job_for(dirtiest, log, plan_for(log, dirt[dirtiest], now_ms, self.dedupe_buffer_bytes))
            del dirt[dirtiest]
        return None

    def _may_be_compacted(self, key: Key, log: PartitionLog, now_ms: int) -> bool:
        return (
            log.failure is None
            and not log.is_swapping
            and key not in self.uncleanable
            and self._put_off.get(key, now_ms) <= now_ms
        )

    @contextlib.contextmanager
    def _or_another(self, key: Key, log: PartitionLog) -> Iterator[None]:
        try:
            yield
        except (LogClosed, LogOffline):
            pass
        except StorageError as error:
            self._give_up(key, log, error)
        except OSError as error:
            self._retry_later(key, log, error)

    def _give_up(self, key: Key, log: PartitionLog, error: Exception) -> None:
        if self._logs.get(key) is log:  # else it was deleted meanwhile, and another may have its name
            _log.error("%s cannot be compacted: %s", log.directory, error)
            self.uncleanable[key] = error

    def _retry_later(self, key: Key, log: PartitionLog, error: Exception) -> None:
        if self._logs.get(key) is log:
            _log.error("%s is compacted later: %s", log.directory, error)
            self._put_off[key] = self._clock.now_ms() + COMPACTION_RETRY_MS

    def _job_for(self, key: Key, log: PartitionLog, plan: CleaningPlan) -> CompactionJob:
        def bury(path: Path) -> None:
            self._graveyard.bury(path, log.config.file_delete_delay_ms)

        def cleaned(offset: int) -> None:
            home = self._homes.get(key)
            if home is not None and self._logs.get(key) is log:
                home.note_cleaned(key, offset)

        return CompactionJob(
            log,
            plan,
            self._files,
            self._start_cleaner,
            cleaned=cleaned,
            bury=bury,
            give_up=lambda error: self._give_up(key, log, error),
            put_off=lambda error: self._retry_later(key, log, error),
        )


def _dirt_of(log: PartitionLog, cleaned_until: int, now_ms: int) -> Dirt:
    return compaction.dirt_of(
        log.segments(),
        log.config,
        now_ms,
        cleaned_until=cleaned_until,
        log_start_offset=log.log_start_offset,
        last_stable_offset=log.last_stable_offset,
        first_timestamp_ms=log.first_timestamp_ms,
    )
