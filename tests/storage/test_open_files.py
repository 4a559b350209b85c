"""Few files open at once: logs that share a bound keep to it together, and open again what was closed."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from pylog.storage.open_files import Closable, OpenFiles
from tests.support.logs import START_MS, batch_of, bytes_of, committed, offsets_in, records_in


class Holder:
    def __init__(self, bound: OpenFiles) -> None:
        self.bound = bound
        self.is_open = False

    def open(self) -> None:
        self.is_open = True
        self.bound.opened(self)

    def release(self) -> None:
        self.is_open = False
        self.bound.closed(self)


def test_who_opened_first_closes_first() -> None:
    bound = OpenFiles(3)
    holders = [Holder(bound) for _ in range(5)]
    for holder in holders[:4]:
        holder.open()
    assert [holder.is_open for holder in holders] == [False, True, True, True, False]
    holders[1].open()  # a second file of the same holder: it is no newer for that
    holders[4].open()
    assert [holder.is_open for holder in holders] == [False, False, True, True, True]
    holders[2].release()
    holders[2].release()
    holders[0].open()
    assert [holder.is_open for holder in holders] == [True, False, False, True, True]
    assert len(bound) == 3


def test_logs_that_share_a_bound_keep_to_it_from_the_first_append_on(tmp_path: Path) -> None:
    bound = OpenFiles(2)
    logs = [PartitionLog(tmp_path / str(number), LogConfig(), open_files=bound) for number in range(5)]
    for _ in range(2):
        for log in logs:
            log.append(batch_of(), 0)
            assert len(bound) <= 2
    assert len(bound) == 2
    assert [len(records_in(log)) for log in logs] == [2] * 5


def test_a_segment_whose_files_another_thread_closes_as_they_are_opened_is_written_and_read(tmp_path: Path) -> None:
    class Crowded(OpenFiles):
        def opened(self, holder: Closable) -> None:
            super().opened(holder)
            holder.release()  # as a thread does that has just opened as many others

    log = PartitionLog(tmp_path / "orders-0", LogConfig(), open_files=Crowded())
    committed(log, batch_of(2))
    committed(log, batch_of(1))
    assert offsets_in(log) == [0, 1, 2]


def _open_in(directory: Path) -> int:
    """How many descriptors and mappings of this process are on files of the directory."""
    links = Path("/proc/self/fd")
    if not links.exists():
        pytest.skip("needs /proc")
    names = [os.readlink(link) for link in links.iterdir() if link.exists() or link.is_symlink()]
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum(name.startswith(str(directory)) for name in names) + sum(str(directory) in line for line in maps)


HOLDERS = 8
DESCRIPTORS_MAX = 2 * HOLDERS + 1  # of each a log, to read and to append; and the lock
CONFIG = LogConfig(segment_bytes=3 * len(batch_of(2)), index_interval_bytes=0)


def test_hundreds_of_partitions_are_written_and_read_with_a_handful_of_descriptors(tmp_path: Path) -> None:
    bound = OpenFiles(HOLDERS)
    logs = [PartitionLog(tmp_path / f"orders-{partition}", CONFIG, open_files=bound) for partition in range(200)]
    most = 0
    for number in range(5):
        for log in logs:
            committed(log, batch_of(2, timestamp_ms=START_MS + number))
        most = max(most, _open_in(tmp_path))
    for log in logs:
        assert offsets_in(log) == list(range(10))
        assert log.offset_at_time(START_MS + 4) == (START_MS + 4, 7)
        assert log.offset_of_max_timestamp() == (START_MS + 5, 9)
    most = max(most, _open_in(tmp_path))
    assert HOLDERS <= most <= DESCRIPTORS_MAX
    for log in logs:
        log.abandon()
    assert _open_in(tmp_path) == 0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager([tmp_path / "data"], CONFIG, open_files_max=HOLDERS)
    yield manager
    manager.close()


def test_a_manager_keeps_to_its_bound_in_all_that_it_does(tmp_path: Path, manager: LogManager) -> None:
    logs = [manager.open("orders", partition, UUID(int=1)) for partition in range(3 * HOLDERS)]
    for number in range(5):
        for log in logs:
            committed(log, batch_of(2, timestamp_ms=START_MS + number))
    for log in manager.logs_to_flush():
        log.flush()
        assert log.recovery_point == 10
    for work in (manager.checkpoint, manager.retain):
        work()
        assert _open_in(tmp_path) <= DESCRIPTORS_MAX
    manager.close()
    assert _open_in(tmp_path) == 0


def test_a_killed_process_opens_hundreds_of_partitions_with_a_handful_of_descriptors(tmp_path: Path) -> None:
    logs = [PartitionLog(tmp_path / f"orders-{partition}", CONFIG) for partition in range(40)]
    for log in logs:
        for _ in range(5):
            committed(log, batch_of(2))
        log.abandon()
    bound = OpenFiles(HOLDERS)
    most = 0
    for log in logs:
        again = PartitionLog(log.directory, CONFIG, open_files=bound)
        most = max(most, _open_in(tmp_path))
        assert offsets_in(again) == list(range(10))
    assert most <= DESCRIPTORS_MAX


def test_a_read_under_way_keeps_its_file_whatever_else_is_opened(manager: LogManager) -> None:
    logs = [manager.open("orders", partition, UUID(int=1)) for partition in range(3 * HOLDERS)]
    for log in logs:
        committed(log, batch_of(2))
    part = logs[0].read(0, 1 << 20)
    assert part is not None
    before = bytes_of(part)
    for log in logs[1:]:
        assert len(records_in(log)) == 2
    assert bytes_of(part) == before


def test_a_process_without_descriptors_is_told_and_goes_on_when_it_has_some(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path / "orders-0", LogConfig())
    committed(log, batch_of(2))
    log._segments.active.release()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 2, limits[1]))
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        for use in (lambda: log.append(batch_of(1), 0), lambda: log.read(0, 1)):
            with pytest.raises(OSError, match="Too many open files") as raised:
                use()
            assert raised.value.errno == errno.EMFILE
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert log.failure is None
    assert committed(log, batch_of(1)) == 2
    assert offsets_in(log) == [0, 1, 2]
