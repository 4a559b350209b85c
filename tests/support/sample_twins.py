"""A data directory with two logs that have a bit of everything, and their twins: what damage is tried on."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast
from uuid import UUID

from pylog.storage.data_directory import Key
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from tests.support.clock import SettableClock
from tests.support.sample_log import CONFIG, DATA, fill
from tests.support.simulated_files import SimulatedFiles
from tests.support.storage_checks import check_log, outcome_of
from tests.support.storage_twin import Twin

FIRST, SECOND = ("first", 0), ("second", 0)


class SampleTwins:
    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.twins = {
            FIRST: Twin(UUID(int=1), CONFIG),
            SECOND: Twin(UUID(int=2), replace(CONFIG, log_append_time=True)),
        }
        self.manager = managed(self.files)
        for key in self.twins:
            fill(cast(PartitionLog, TwinnedLog(self, key)))

    def log(self, key: Key) -> PartitionLog:
        return self.open(self.manager, key)

    def open(self, manager: LogManager, key: Key) -> PartitionLog:
        return manager.open(*key, self.twins[key].topic_id, self.twins[key].config)

    def append(self, key: Key, batches: bytearray, leader_epoch: int = 4) -> None:
        log, twin = self.log(key), self.twins[key]
        twin.appending = batches
        log.append(batches, leader_epoch)
        twin.appended()
        log.advance_high_watermark(log.log_end_offset)

    def check(self, files: SimulatedFiles, manager: LogManager, key: Key) -> PartitionLog:
        """Opened there it is, to the byte, what the twin says that it can be."""
        log = self.open(manager, key)
        check_log(log, outcome_of(log, self.twins[key], files, machine=False), files, Random(0))
        return log


class TwinnedLog:
    """A log whose twin hears of the appends."""

    def __init__(self, sample: SampleTwins, key: Key) -> None:
        self._sample = sample
        self._key = key

    def append(self, batches: bytearray, leader_epoch: int) -> None:
        self._sample.append(self._key, batches, leader_epoch)


def managed(files: SimulatedFiles) -> LogManager:
    return LogManager([DATA], LogConfig(), files=files, clock=SettableClock())


def directory_of(key: Key) -> Path:
    return DATA / f"{key[0]}-{key[1]}"
