"""The same lives on a disk that gets full for a while, or one of whose syncs fails.

A full disk refuses, and that is all: the log is as it was, and goes on when there is room (though a crash of the
machine may bring back what was refused, as it may take what was not flushed). A sync that failed takes its
log offline; what was promised before is kept, and the other logs go on. What lies behind that sync is promised again by
the next process only, which has written it anew: the disk has forgotten it, and does not say so."""

import errno
from collections.abc import Callable, Sequence
from random import Random

from pylog.storage.data_directory import MARKER_NAME, Key
from pylog.storage.errors import LogOffline, StorageError
from tests.support.simulated_files import SimulatedFiles
from tests.support.storage_workload import Workload

FULL_CHANCE = 0.15
FULL_STEPS_MAX = 4
ROOM_BYTES_MAX = 700
SYNC_CHANCE = 0.08
SYNCS_BEFORE_MAX = 3
RESTART_CHANCE = 0.5


class FaultyWorkload(Workload):
    def __init__(self, seed: int, before_operation: "Callable[[Workload], None] | None" = None) -> None:
        self._fate = Random(seed + 1)  # its own, so that the steps do not depend on it
        self._full_steps = 0
        self._doomed: Key | None = None
        self.refused = self.restarted_offline = 0
        self.offline: set[Key] = set()
        super().__init__(seed, before_operation)

    def _live(self, files: SimulatedFiles) -> None:
        self.files = files
        files.before_operation = self._operation

    def run(self) -> None:
        self._start()
        while self.steps and len(self.offline) < len(self.twins):
            self.steps -= 1
            self._step()
        self.files.capacity_bytes = None
        self.files.heal()
        unclean = {log.directory.parent for _, log in self.manager.items() if log.failure is not None}
        self.manager.close()
        for directory in self.directories:
            assert (self.files.size_of(directory / MARKER_NAME) is None) == (directory in unclean)

    # -- fate

    def _step(self) -> None:
        self._choose_fate()
        try:
            super()._step()
        except (OSError, StorageError) as error:
            self._note(f"refused: {error}")
            self.refused += 1
            self._settle(error)
        for key, log in self.manager.items():
            twin = self.twins[key]
            if log.failure is not None:
                truncating = twin.truncating_to is not None or twin.emptying_at is not None
                assert truncating or key == self._doomed, f"{key} is offline without a reason: {log.failure}"
                self.offline.add(key)
            elif key not in self.offline and not twin.under_way:
                assert log.log_end_offset == twin.end

    def _choose_fate(self) -> None:
        self._full_steps -= 1
        if self._full_steps <= 0:
            self.files.capacity_bytes = None
        if self._fate.random() < FULL_CHANCE:
            self.files.capacity_bytes = self.files.used_bytes + self._fate.randrange(ROOM_BYTES_MAX)
            self._full_steps = self._fate.randint(1, FULL_STEPS_MAX)
        if self._doomed is None and self._fate.random() < SYNC_CHANCE:
            self._doomed = self._fate.choice(list(self.twins))
            name = f"{self._doomed[0]}-{self._doomed[1]}"
            self.files.fail("sync", errno.EIO, path=f"*/{name}*", after=self._fate.randrange(SYNCS_BEFORE_MAX))

    def _settle(self, error: OSError | StorageError) -> None:
        """What the twins do not know yet of the step that failed."""
        for key, twin in self.twins.items():
            log = self.manager.get(*key)
            if log is None or log.failure is not None:
                self.offline.add(key)  # what was under way may have happened
            elif key not in self.offline and twin.appending is not None:
                assert isinstance(error, OSError)
                assert error.errno == errno.ENOSPC
                twin.refused()
        half_done = any(twin.under_way for key, twin in self.twins.items() if key not in self.offline)
        if half_done or (self.offline and self._fate.random() < RESTART_CHANCE):
            self._restart()

    def _restart(self) -> None:
        """Half of a deletion is done, or a log is offline: a new process finds out."""
        self.story.append("-- restarted")
        self.files.capacity_bytes = None
        self._doomed = None
        self.restarted_offline += bool(self.offline)
        self.offline.clear()
        self._live(self.files.after_process_crash())
        self._start()

    # -- what is different

    def _usable(self) -> list[Key]:
        return [key for key in self.twins if key not in self.offline]

    def _in_between(self, keys: Sequence[Key], *more: Callable[[Key], None]) -> None:
        """Nothing: who fails is to be clear."""

    def _operation(self) -> None:
        self._waiting_for_disk = False
        super()._operation()

    def _flush_due(self, key: Key) -> None:
        self._flush(key)

    def _reopen(self, key: Key) -> None:
        if self.offline:
            self._restart()
            return
        self.files.capacity_bytes = None
        self.files.heal()
        self._doomed = None
        super()._reopen(key)

    def _retain(self, key: Key) -> None:
        """On a full disk it goes by other rules: test_manager_retention.py."""
        self.files.capacity_bytes = None
        super()._retain(key)

    def _flush(self, key: Key) -> None:
        try:
            super()._flush(key)
        except LogOffline:
            assert key == self._doomed
            raise
