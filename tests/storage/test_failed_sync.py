"""A sync that failed is never believed later, also not by the next process: the disk has forgotten what it had."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from pylog.storage.errors import LogOffline
from pylog.storage.failed_sync import NOTE_NAME
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from tests.support.logs import batch_of, offsets_in
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.faults

FOLDER = Path("/sim/data/t-0")


def opened(files: SimulatedFiles) -> tuple[LogManager, PartitionLog]:
    manager = LogManager([FOLDER.parent], LogConfig(), files=files)
    return manager, manager.open("t", 0, UUID(int=1))


def after_a_failed_sync(path: str, new_epoch: int = 0) -> SimulatedFiles:
    """What the next process finds: two batches that were flushed, two that may be forgotten."""
    files = SimulatedFiles()
    manager, log = opened(files)
    log.append(batch_of(2), 0)
    log.flush()
    manager.checkpoint()
    log.append(batch_of(2), new_epoch)
    files.fail("sync", errno.EIO, path=path)
    with pytest.raises(LogOffline):
        log.flush()
    assert files.size_of(FOLDER / NOTE_NAME) == 0
    manager.close()
    files.heal()
    return files.after_process_crash()


@pytest.mark.parametrize("path", ["*.log", "*/t-0", "*/leader-epoch-checkpoint"])
def test_what_the_next_process_flushes_is_kept(path: str) -> None:
    files = after_a_failed_sync(path, new_epoch=1)
    manager, log = opened(files)
    assert offsets_in(log) == [0, 1, 2, 3]
    log.append(batch_of(2), 1)
    log.flush()
    manager.checkpoint()
    assert files.size_of(FOLDER / NOTE_NAME) is None
    _, log = opened(files.after_machine_crash(None))
    assert offsets_in(log) == [0, 1, 2, 3, 4, 5]
    assert [entry.start_offset for entry in log.epochs.entries] == [0, 2]


def test_before_the_next_flush_a_power_cut_takes_what_was_not_kept_and_no_more() -> None:
    files = after_a_failed_sync("*.log")
    opened(files)
    for seed in (None, *range(20)):
        _, log = opened(files.after_machine_crash(seed))
        assert offsets_in(log) in ([0, 1], [0, 1, 2, 3])


def test_a_clean_close_flushes_too() -> None:
    files = after_a_failed_sync("*.log")
    manager, _ = opened(files)
    manager.close()
    assert files.size_of(FOLDER / NOTE_NAME) is None
    _, log = opened(files.after_machine_crash(None))
    assert offsets_in(log) == [0, 1, 2, 3]


def test_a_disk_that_fails_again_leaves_the_note_for_the_process_after_it() -> None:
    files = after_a_failed_sync("*.log")
    files.fail("sync", errno.EIO, path="*/t-0/*")
    with pytest.raises(OSError, match="Input/output"):
        opened(files)
    files = files.after_process_crash()
    assert files.size_of(FOLDER / NOTE_NAME) == 0
    assert offsets_in(opened(files)[1]) == [0, 1, 2, 3]


@pytest.mark.parametrize("goes_on", [False, True], ids=["log ends where it began", "log goes on behind where it began"])
@pytest.mark.parametrize("failures_more", [0, 1, 2])
def test_a_segment_whose_removal_was_forgotten_does_not_come_back(goes_on: bool, failures_more: int) -> None:
    files = SimulatedFiles()
    manager, log = opened(files)
    log.append(batch_of(2), 0)
    log.roll()
    log.append(batch_of(2), 0)
    log.flush()
    files.fail("sync", errno.EIO, path="*/t-0")
    with pytest.raises(OSError, match="Input/output"):
        manager.truncate_to("t", 0, 1)
    for _ in range(failures_more):
        files = files.after_process_crash()
        files.fail("sync", errno.EIO, path="*/t-0")
        with pytest.raises(OSError, match="Input/output"):
            opened(files)
    files = files.after_process_crash()
    manager, log = opened(files)
    kept = [0, 1]
    if goes_on:
        log.append(batch_of(1), 0)
        kept.append(2)
    assert offsets_in(log) == kept
    manager.close()
    _, log = opened(files.after_machine_crash(None))
    assert offsets_in(log) == kept
