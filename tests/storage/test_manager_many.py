"""Many logs made and deleted in one go: as one by one, only sooner."""

import errno
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager, Wanted
from tests.support.logs import batch_of, committed
from tests.support.simulated_files import SimulatedFiles

ID = UUID(int=1)
COUNT = 60


def _wanted(*partitions: int) -> list[Wanted]:
    return [Wanted(("t", partition), ID, LogConfig(segment_bytes=1000 + partition)) for partition in partitions]


def _logs(opened: list[PartitionLog | Exception]) -> list[PartitionLog]:
    assert all(isinstance(one, PartitionLog) for one in opened), opened
    return [one for one in opened if isinstance(one, PartitionLog)]


def test_on_a_real_disk_several_threads_make_them_and_spread_them_evenly(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    manager = LogManager(paths, LogConfig(), open_files_max=4)
    logs = _logs(manager.open_all(_wanted(*range(COUNT)), new=True))
    assert [log.directory.name for log in logs] == [f"t-{partition}" for partition in range(COUNT)]
    assert [log.config.segment_bytes for log in logs] == [1000 + partition for partition in range(COUNT)]
    assert Counter(log.directory.parent for log in logs) == dict.fromkeys(paths, COUNT // 3)
    for log in logs:
        committed(log, batch_of(2))
    manager.close()
    manager = LogManager(paths, LogConfig())
    logs = _logs(manager.open_all(_wanted(*range(COUNT)), new=False))
    assert [log.log_end_offset for log in logs] == [2] * COUNT
    manager.delete_all([("t", partition) for partition in range(COUNT)])
    assert not [folder for path in paths for folder in path.iterdir() if folder.is_dir()]
    manager.close()


def test_one_that_is_wanted_twice_or_is_there_already_is_one() -> None:
    manager = LogManager([Path("/sim/data")], LogConfig(), files=SimulatedFiles())
    first = manager.open("t", 0, ID)
    opened = _logs(manager.open_all(_wanted(0, 1, 1), new=True))
    assert opened[0] is first
    assert opened[1] is opened[2]


def test_one_that_cannot_be_made_keeps_no_other_back() -> None:
    files = SimulatedFiles()
    manager = LogManager([Path("/sim/data")], LogConfig(), files=files)
    files.fail("create_directory", errno.ENOSPC, path="*/t-1")
    opened = manager.open_all(_wanted(0, 1, 2), new=True)
    assert [isinstance(one, PartitionLog) for one in opened] == [True, False, True]
    with pytest.raises(OSError, match="No space"):
        raise next(one for one in opened if isinstance(one, Exception))
    assert len(_logs(manager.open_all(_wanted(1), new=True))) == 1
