"""Several data directories: where new logs go, what happens when one cannot be read, one log in one place only."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from pylog.storage.errors import DataDirectoryInUse, LogOffline
from pylog.storage.log import LogConfig
from pylog.storage.manager import LogManager
from tests.support.logs import batch_of, committed, offsets_in
from tests.support.simulated_files import SimulatedFiles

ID = UUID(int=1)
A, B, C = (Path("/sim") / name for name in "abc")
MARKER = ".kafka_cleanshutdown"


def _managed(files: SimulatedFiles, *paths: Path) -> LogManager:
    return LogManager(paths, LogConfig(), files=files)


def _homes(manager: LogManager) -> dict[int, str]:
    return {partition: log.directory.parent.name for (_, partition), log in manager.items()}


def test_a_new_log_goes_where_the_fewest_are() -> None:
    files = SimulatedFiles()
    manager = _managed(files, A)
    for partition in range(3):
        manager.open("orders", partition, ID)
    manager.close()
    manager = _managed(files, A, B, C)
    for partition in range(10):
        manager.open("orders", partition, ID)
    homes = _homes(manager)
    assert [homes[partition] for partition in range(3)] == ["a"] * 3
    assert sorted(homes.values()) == ["a"] * 4 + ["b"] * 3 + ["c"] * 3
    manager.delete("orders", 9)
    freed = homes[9]
    manager.open("payments", 0, ID)
    assert manager.items()[-1][1].directory.parent.name in {freed, "b", "c"}


def test_logs_are_found_again_wherever_they_are() -> None:
    files = SimulatedFiles()
    manager = _managed(files, A, B)
    for partition in range(6):
        committed(manager.open("orders", partition, ID), batch_of(partition + 1))
    homes = _homes(manager)
    manager.close()
    manager = _managed(files, B, A)
    for partition in range(6):
        assert manager.open("orders", partition, ID).log_end_offset == partition + 1
    assert _homes(manager) == homes
    assert manager.directories == [B, A]


def test_every_directory_has_its_own_marker() -> None:
    files = SimulatedFiles()
    manager = _managed(files, A, B)
    for partition in range(2):
        committed(manager.open("orders", partition, ID), batch_of(1))
    files.fail("append", errno.EIO, path="/sim/a/*")
    with pytest.raises(OSError, match="Input/output"):
        manager.items()[0][1].append(batch_of(1), 0)
    manager.close()
    assert files.size_of(A / MARKER) is None
    assert files.size_of(B / MARKER) is not None


def test_a_log_that_is_in_two_places_is_refused() -> None:
    files = SimulatedFiles()
    for path in (A, B):
        manager = _managed(files, path)
        manager.open("orders", 0, ID)
        manager.close()
    with pytest.raises(DataDirectoryInUse, match="orders-0 is both in /sim/a and in /sim/b"):
        _managed(files, A, B)
    _managed(files, A).close()  # the locks are free again


def test_a_directory_that_another_process_holds_frees_those_taken_before() -> None:
    files = SimulatedFiles()
    holder = _managed(files, B)
    with pytest.raises(DataDirectoryInUse, match="/sim/b is in use"):
        _managed(files, A, B)
    holder.close()
    _managed(files, A, B)


# -- a directory that fails


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        pytest.param("lock", "/sim/a/*", id="lock"),
        pytest.param("sync", "/sim/a", id="sync"),
        pytest.param("read_at", "/sim/a/*checkpoint", id="checkpoint"),
        pytest.param("remove", f"/sim/a/{MARKER}", id="marker"),
        pytest.param("directories_in", "/sim/a", id="listing"),
    ],
)
def test_a_directory_that_fails_at_the_start_takes_its_own_logs_offline_and_no_others(
    operation: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = SimulatedFiles()
    manager = _managed(files, A, B)
    for partition in range(4):
        committed(manager.open("orders", partition, ID), batch_of(2))
        manager.items()[-1][1].flush()
    homes = _homes(manager)
    manager.close()
    files.fail(operation, errno.EIO, path=path)
    manager = _managed(files, A, B)
    assert list(manager.offline_directories) == [A]
    assert manager.directories == [B]
    assert "/sim/a is offline" in caplog.text
    for partition, home in homes.items():
        if home == "b":
            assert offsets_in(manager.open("orders", partition, ID)) == [0, 1]
        else:
            with pytest.raises(LogOffline, match="/sim/a"):
                manager.open("orders", partition, ID)
    assert manager.open("payments", 0, ID, new=True).directory.parent == B
    manager.close()
    manager = _managed(files, A, B)  # the disk is well again
    for partition in range(4):
        assert offsets_in(manager.open("orders", partition, ID)) == [0, 1]


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        pytest.param("create_directory", "/sim/a/*", id="directory"),
        pytest.param("sync", "/sim/a", id="its name"),
        pytest.param("write_at", "/sim/a/*/partition.metadata.tmp", id="topic id"),
        pytest.param("sync", "/sim/a/orders-0", id="the name of the topic id"),
    ],
)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for good"])
def test_a_new_log_that_one_directory_cannot_take_goes_to_the_next(operation: str, path: str, forever: bool) -> None:
    files = SimulatedFiles()
    manager = _managed(files, A, B)
    files.fail(operation, errno.EIO, path=path, times=None if forever else 1)
    if forever:  # nor can it be tidied
        files.fail("remove*", errno.EIO, path="/sim/a/*", times=None)
    log = manager.open("orders", 0, ID, new=True)
    assert log.directory == B / "orders-0"
    committed(log, batch_of(2))
    log.flush()
    for crashed in (files.after_process_crash(), files.after_machine_crash(None), files.after_machine_crash(1)):
        for order in ((A, B), (B, A)):
            again = _managed(crashed, *order)
            assert offsets_in(again.open("orders", 0, ID)) == [0, 1]
            crashed = crashed.after_process_crash()


@pytest.mark.parametrize("order", [(A, B), (B, A)], ids=["what failed first", "what failed last"])
def test_a_log_that_is_being_emptied_keeps_its_home_beside_a_folder_that_could_not_be_made(
    order: tuple[Path, Path],
) -> None:
    """For a moment neither of the two holds a log. Where the log is, its start is known."""
    files = SimulatedFiles()
    manager = _managed(files, A, B)
    files.fail("sync", errno.EIO, path="/sim/a/orders-0")
    files.fail("remove*", errno.EIO, path="/sim/a/*", times=None)
    log = manager.open("orders", 0, ID, new=True)
    committed(log, batch_of(4))
    manager.delete_records("orders", 0, 3)
    starts = set()

    def check() -> None:
        for crashed in (files.after_process_crash(), files.after_machine_crash(None), files.after_machine_crash(1)):
            again = _managed(crashed, *order).open("orders", 0, ID)
            assert again.directory == B / "orders-0"
            starts.add(again.log_start_offset)

    files.before_operation = check
    manager.truncate_fully_and_start_at("orders", 0, 9)
    check()
    assert starts == {3, 9}


def test_a_folder_that_could_not_be_made_does_not_stand_for_a_log_whose_directory_is_offline() -> None:
    files = SimulatedFiles()
    manager = _managed(files, A, B)
    files.fail("sync", errno.EIO, path="/sim/a/orders-0")
    files.fail("remove*", errno.EIO, path="/sim/a/*", times=None)
    committed(manager.open("orders", 0, ID, new=True), batch_of(2))
    files = files.after_process_crash()
    files.fail("lock", errno.EIO, path="/sim/b/*", times=None)
    with pytest.raises(LogOffline, match="offline: /sim/b"):
        _managed(files, A, B).open("orders", 0, ID)
    again = _managed(files.after_process_crash(), A, B)  # the disk is well again
    assert offsets_in(again.open("orders", 0, ID)) == [0, 1]


@pytest.mark.parametrize("tidied", [True, False])
def test_a_directory_whose_sync_failed_is_made_anew(tidied: bool) -> None:
    """A second sync would say that all is well."""
    files = SimulatedFiles()
    manager = _managed(files, A)
    files.fail("sync", errno.EIO, path=str(A))
    if not tidied:
        files.fail("remove_directory", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        manager.open("orders", 0, ID, new=True)
    log = manager.open("orders", 0, ID, new=True)
    committed(log, batch_of(2))
    log.flush()
    for seed in (None, 1, 2, 3):
        assert offsets_in(_managed(files.after_machine_crash(seed), A).open("orders", 0, ID)) == [0, 1]


def test_without_any_directory_that_can_be_read_there_is_no_manager() -> None:
    files = SimulatedFiles()
    files.fail("lock", errno.EIO, times=None)
    with pytest.raises(OSError, match="Input/output"):
        _managed(files, A, B)
    with pytest.raises(ValueError, match="no data directory"):
        _managed(files)


def test_a_directory_whose_checkpoints_cannot_be_stored_does_not_hold_up_the_others() -> None:
    files = SimulatedFiles()
    manager = _managed(files, A, B)
    for partition in range(2):
        log = manager.open("orders", partition, ID)
        committed(log, batch_of(3))
        log.flush()
    files.fail("write_at", errno.EIO, path="/sim/a/*", times=None)
    with pytest.raises(OSError, match="Input/output"):
        manager.checkpoint()
    assert files.size_of(A / "recovery-point-offset-checkpoint") is None
    assert b"orders 1 3" in (files.read(B / "recovery-point-offset-checkpoint") or b"")


def test_records_are_not_deleted_where_the_new_start_cannot_be_stored() -> None:
    files = SimulatedFiles()
    config = LogConfig(segment_bytes=len(batch_of(1)))
    manager = LogManager([A, B], config, files=files)
    for partition in range(2):
        for _ in range(3):
            committed(manager.open("orders", partition, ID), batch_of(1))
    files.fail("write_at", errno.EIO, path="/sim/a/log-start*", times=None)
    for log in (log for _, log in manager.items()):
        log.move_start(2)
    manager.store_starts()
    doomed = manager.detach([("orders", 0), ("orders", 1)])
    assert [entry.log.directory for entry in doomed] == [B / "orders-1"]
    with pytest.raises(OSError, match="Input/output"):
        manager.delete_records("orders", 0, 2)
    assert len([name for name in files.sizes_in(A / "orders-0") if name.endswith(".log")]) == 3
    files.heal()
    manager.delete_records("orders", 0, 2)
    assert [name for name in files.sizes_in(A / "orders-0") if name.endswith(".log")] == [f"{2:020d}.log"]
