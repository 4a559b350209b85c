"""The data directory: one owner, the marker of a clean stop, topic ids, deletion that a crash cannot halve."""

import errno
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from pylog.storage.errors import DamagedFile, DataDirectoryInUse, LogClosed
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from pylog.storage.recovery import Trust
from tests.support.logs import batch_of, records_in
from tests.support.simulated_files import Crashed, SimulatedFiles

ID = UUID(bytes=bytes(range(16)))
OTHER_ID = UUID(bytes=bytes(range(1, 17)))
DATA = Path("/sim/data")
MARKER = DATA / ".kafka_cleanshutdown"


def _managed(files: SimulatedFiles) -> LogManager:
    return LogManager([DATA], LogConfig(), files=files)


def _folders(files: SimulatedFiles) -> list[str]:
    return files.directories_in(DATA)


# -- partitions


def test_a_partition_is_created_and_found_again() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    assert manager.get("orders", 3) is None
    log = manager.open("orders", 3, ID)
    assert manager.open("orders", 3, ID) is log is manager.get("orders", 3)
    assert manager.items() == [(("orders", 3), log)]
    assert (manager.directories, log.directory) == ([DATA], DATA / "orders-3")
    log.append(batch_of(2), 0)
    manager.close()
    with pytest.raises(LogClosed):
        log.append(batch_of(1), 0)
    assert len(records_in(_managed(files).open("orders", 3, ID))) == 2


def test_a_partition_may_have_a_configuration_of_its_own() -> None:
    manager = _managed(SimulatedFiles())
    assert manager.open("a", 0, ID).config == LogConfig()
    assert manager.open("a", 1, ID, LogConfig(segment_bytes=1000)).config.segment_bytes == 1000


def test_partition_metadata_is_kafkas_to_the_byte() -> None:
    files = SimulatedFiles()
    log = _managed(files).open("orders", 0, ID)
    assert files.read(log.directory / "partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_a_log_opened_by_itself_needs_no_manager(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path / "orders-0", LogConfig(), Trust(clean=False))
    log.append(batch_of(1), 0)
    log.close()
    assert len(records_in(PartitionLog(tmp_path / "orders-0", LogConfig(), Trust(clean=True)))) == 1


# -- one owner


def test_a_second_manager_is_refused_with_the_name_of_the_directory() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    with pytest.raises(DataDirectoryInUse, match=str(DATA)):
        _managed(files)
    manager.close()
    _managed(files)


@pytest.fixture
def manage(tmp_path: Path) -> Iterator[Callable[[], LogManager]]:
    """Opens the same data directory of the real disk; what is left open at the end is closed."""
    opened: list[LogManager] = []

    def manage() -> LogManager:
        opened.append(LogManager([tmp_path / "data"], LogConfig()))
        return opened[-1]

    yield manage
    for manager in opened:
        manager.close()


def test_the_lock_of_a_process_that_died_is_free(tmp_path: Path, manage: Callable[[], LogManager]) -> None:
    script = (
        "import os, sys; from pathlib import Path; from uuid import UUID\n"
        "from pylog.storage.manager import LogManager; from pylog.storage.log import LogConfig\n"
        "from tests.support.logs import batch_of\n"
        "log = LogManager([Path(sys.argv[1])], LogConfig()).open('orders', 0, UUID(int=1))\n"
        "log.append(batch_of(3), 0); print('ready', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(DataDirectoryInUse):
            manage()
        process.kill()
    assert len(records_in(manage().open("orders", 0, UUID(int=1)))) == 3


# -- the marker


def test_a_clean_stop_leaves_a_marker_and_a_start_takes_it() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    manager.open("orders", 0, ID)
    assert files.size_of(MARKER) is None
    manager.close()
    manager.close()
    assert files.read(MARKER) == b'{"version":0,"brokerEpoch":-1}'
    _managed(files)
    assert files.size_of(MARKER) is None


def test_a_killed_manager_leaves_no_marker_and_the_next_recovers(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = manager.open("orders", 0, ID)
    log.append(batch_of(2), 0)
    log.append(batch_of(2), 0)
    files = files.after_process_crash()
    files.flip_bit(log.directory / f"{0:020d}.log", 8 * (log.size_bytes - 1))  # only a checksum tells
    assert len(records_in(_managed(files).open("orders", 0, ID))) == 2
    assert "cut at byte" in caplog.text


def test_after_a_clean_stop_nothing_is_scanned() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = manager.open("orders", 0, ID)
    log.append(batch_of(2), 0)
    manager.close()
    files.flip_bit(log.directory / f"{0:020d}.log", 8 * (log.size_bytes - 1))
    assert _managed(files).open("orders", 0, ID).log_end_offset == 2


def test_a_log_that_was_never_recovered_is_not_called_clean() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    for partition in range(2):
        manager.open("orders", partition, ID)
    files = files.after_process_crash()
    manager = _managed(files)
    manager.open("orders", 0, ID)
    manager.close()
    assert files.size_of(MARKER) is None
    manager = _managed(files)
    for partition in range(2):
        manager.open("orders", partition, ID)
    manager.close()
    assert files.size_of(MARKER) is not None


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_log_that_cannot_be_closed_leaves_no_marker_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture, error: int
) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    logs = [manager.open("orders", partition, ID) for partition in range(3)]
    for log in logs:
        log.append(batch_of(1), 0)
    files.fail("write_at", error, path="*/orders-1/*index")
    manager.close()
    assert "orders-1 could not be closed" in caplog.text
    assert files.size_of(MARKER) is None
    assert files.size_of(logs[2].directory / f"{0:020d}.timeindex") == 12
    manager = _managed(files)
    assert all(len(records_in(manager.open("orders", partition, ID))) == 1 for partition in range(3))


def test_a_marker_that_cannot_be_written_costs_a_recovery_and_frees_the_lock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    manager.open("orders", 0, ID).append(batch_of(1), 0)
    files.fail("write_at", errno.ENOSPC, path=f"{MARKER}*")
    manager.close()
    assert "could not be marked as clean" in caplog.text
    assert files.size_of(MARKER) is None
    assert len(records_in(_managed(files).open("orders", 0, ID))) == 1


def test_the_marker_goes_before_anything_changes_and_comes_last() -> None:
    files = SimulatedFiles()
    _managed(files).close()
    files.sync_all()
    before = files.operations
    manager = _managed(files)
    steps = [line.split()[1:3] for line in files.history[before:]]
    changes = [step for step in steps if step[0] != "sync"]
    assert changes[0] == ["remove", str(MARKER)]
    assert steps[steps.index(changes[0]) + 1] == ["sync", str(DATA)]
    manager.open("orders", 0, ID).append(batch_of(1), 0)
    before = files.operations
    manager.close()
    steps = [line.split()[1:] for line in files.history[before:]]
    assert steps[-2][:3] == ["rename", f"{MARKER}.tmp", "->"]
    assert steps[-1] == ["sync", str(DATA)]


# -- topic ids


def test_a_log_that_names_another_topic_is_refused_and_left_as_it_is() -> None:
    """A flipped bit makes another legible id: nobody may take that for a log that is not there."""
    files = SimulatedFiles()
    manager = _managed(files)
    log = manager.open("orders", 0, ID)
    log.append(batch_of(5), 0)
    manager.close()
    metadata = log.directory / "partition.metadata"
    files.flip_bit(metadata, 8 * 30 + 1)
    before = files.read(metadata)
    manager = _managed(files)
    with pytest.raises(DamagedFile, match=f"{metadata}: damaged at line 2: .* and not {ID}"):
        manager.open("orders", 0, ID)
    assert _folders(files) == ["orders-0"]
    assert files.read(metadata) == before
    files.remove(metadata)  # as it says
    assert manager.open("orders", 0, ID).log_end_offset == 5


def test_what_another_topic_of_the_name_left_is_set_aside_for_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    manager.open("orders", 0, ID).append(batch_of(5), 0)
    manager.close()
    manager = _managed(files)
    log = manager.open("orders", 0, OTHER_ID, new=True)
    assert log.log_end_offset == 0
    assert "belongs to no topic that is known" in caplog.text
    kept, aside = _folders(files)
    assert kept == "orders-0"
    assert (aside.startswith("orders-0."), aside.endswith("-stray")) == (True, True)
    manager.close()
    assert _managed(files).open("orders", 0, OTHER_ID).log_end_offset == 0


def test_an_open_log_is_not_handed_out_for_another_topic_of_its_name() -> None:
    manager = _managed(SimulatedFiles())
    manager.open("orders", 0, ID)
    with pytest.raises(ValueError, match="delete it first"):
        manager.open("orders", 0, OTHER_ID)


@pytest.mark.parametrize("text", [None, b"", b"version: 0\ntopic_id: AAEC", b"\xff\xfe\x00garbage"])
def test_a_folder_whose_id_cannot_be_read_is_adopted(text: bytes | None) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = manager.open("orders", 0, ID)
    log.append(batch_of(5), 0)
    manager.close()
    metadata = log.directory / "partition.metadata"
    before = files.read(metadata)
    if text is None:
        files.remove(metadata)
    else:
        files.replace(metadata, text, durable=True)
    assert _managed(files).open("orders", 0, ID).log_end_offset == 5
    assert files.read(metadata) == before


@pytest.mark.parametrize("topic", ["", "../escape", "a/b", "a\x00", "a b", "x" * 250, "ü"])
def test_a_topic_that_cannot_name_a_folder_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="cannot name a partition"):
        _managed(SimulatedFiles()).open(topic, 0, ID)


def test_a_partition_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot name a partition"):
        _managed(SimulatedFiles()).open("orders", -1, ID)


@pytest.mark.parametrize("topic", [".", "..", "a-1", "a.b_c-d", "__consumer_offsets", "-", "x" * 249])
def test_every_name_that_kafka_allows_works(manage: Callable[[], LogManager], tmp_path: Path, topic: str) -> None:
    manager = manage()
    manager.open(topic, 12, ID).append(batch_of(1), 0)
    manager.close()
    manager = manage()
    assert manager.open(topic, 12, ID).log_end_offset == 1
    manager.sweep({(topic, 12)}, set())
    manager.delete(topic, 12)
    assert [path for path in (tmp_path / "data").iterdir() if path.is_dir()] == []


# -- deletion


def test_a_deleted_partition_is_gone_and_can_come_back_empty() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    log = manager.open("orders", 0, ID)
    log.append(batch_of(5), 0)
    part = log.read(0, 1 << 20)
    manager.delete("orders", 0)
    assert manager.get("orders", 0) is None
    assert _folders(files) == []
    assert part is not None
    assert len(part.file.read_at(part.position, part.length)) == part.length
    for use in (lambda: log.read(0, 1), log.flush):
        with pytest.raises(LogClosed):
            use()
    assert manager.open("orders", 0, OTHER_ID).log_end_offset == 0


def test_a_partition_that_is_not_open_or_not_there_can_be_deleted() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    manager.open("orders", 0, ID)
    manager.close()
    manager = _managed(files)
    manager.delete("orders", 0)
    manager.delete("orders", 7)
    assert _folders(files) == []


def test_a_deletion_cut_short_is_finished_at_the_next_start() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    manager.open("orders", 0, ID).append(batch_of(5), 0)
    files.fail("remove", errno.EIO, path="*-delete/*")
    with pytest.raises(OSError, match="Input/output"):
        manager.delete("orders", 0)
    (left,) = _folders(files)
    assert left.startswith("orders-0.")
    assert left.endswith("-delete")
    files = files.after_process_crash()
    manager = _managed(files)
    assert _folders(files) == []
    assert manager.open("orders", 0, ID).log_end_offset == 0


def test_of_the_partitions_that_nobody_knows_the_deleted_go_and_others_are_set_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    ids = {"known": ID, "gone": OTHER_ID, "lost": ID, "opened": ID, "again": OTHER_ID}
    for topic, topic_id in ids.items():
        manager.open(topic, 0, topic_id).append(batch_of(1), 0)
    manager.close()
    for name in ("lost+found", "notes", "known-x", "archive-2026", "backup-01"):
        files.create_directory(DATA / name)
    manager = _managed(files)
    manager.open("opened", 0, ID)
    with caplog.at_level(logging.WARNING):
        manager.sweep({("known", 0), ("again", 0)}, {OTHER_ID})
    assert "lost-0 belongs to no topic" in caplog.text
    folders = _folders(files)
    (aside,) = (name for name in folders if name.endswith("-stray"))
    assert aside.startswith("lost-0.")
    folders.remove(aside)
    assert folders == ["archive-2026", "backup-01", "known-0", "known-x", "lost+found", "notes", "opened-0"]
    assert manager.open("again", 0, ID).log_end_offset == 0


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        pytest.param("read_at", "*/first-0/partition.metadata", id="its topic cannot be read"),
        pytest.param("rename", "*/first-0", id="it cannot be renamed"),
    ],
)
def test_a_partition_that_cannot_be_dealt_with_does_not_keep_the_others_from_it(
    operation: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    for topic in ("first", "second"):
        manager.open(topic, 0, ID)
    manager.close()
    manager = _managed(files)
    files.fail(operation, errno.EIO, path=path, times=None)
    manager.sweep({("first", 0)}, {ID})
    assert _folders(files) == ["first-0"]
    assert "first-0: [Errno 5]" in caplog.text
    with pytest.raises((OSError, DamagedFile)):
        manager.open("first", 0, OTHER_ID)


def test_strays_are_not_counted_as_logs_that_wait_for_recovery() -> None:
    files = SimulatedFiles()
    manager = _managed(files)
    manager.open("gone", 0, ID)
    files.create_directory(DATA / "archive-2026")
    files = files.after_process_crash()
    manager = _managed(files)
    manager.sweep(set(), set())
    manager.close()
    assert files.size_of(MARKER) is not None


def test_a_crash_at_any_step_of_creation_and_deletion_leaves_a_directory_that_works() -> None:
    """The data directory as it is before every change to it, taken by the next process."""

    def work(files: SimulatedFiles) -> None:
        manager = _managed(files)
        manager.open("orders", 0, ID)
        manager.delete("orders", 0)
        manager.open("orders", 0, OTHER_ID).append(batch_of(3), 0)
        manager.close()

    for step in range(1, 1000):
        files = SimulatedFiles(seed=step)
        files.crash_at = step
        try:
            work(files)
            break
        except Crashed:
            pass
        for crashed in (files.after_process_crash(), files.after_machine_crash(step), files.after_machine_crash(None)):
            for topic_id in (OTHER_ID, uuid4()):
                again = _managed(crashed)
                log = again.open("orders", 0, topic_id, new=True)
                assert log.log_end_offset in (0, 3)
                log.append(batch_of(1), 0)
                again.close()
    assert step > 40
