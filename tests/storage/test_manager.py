"""The data directory: one owner, the marker of a clean stop, topic ids, deletion that a crash cannot halve."""

import errno
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from pylog.storage import files
from pylog.storage.errors import DataDirectoryInUse, LogClosed
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from pylog.storage.recovery import Trust
from tests.support.logs import batch_of, records_in

ID = UUID(bytes=bytes(range(16)))
OTHER_ID = UUID(bytes=bytes(range(1, 17)))
MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def manage(tmp_path: Path) -> Iterator[Callable[[], LogManager]]:
    """Opens the same data directory, again and again; what is left open at the end is closed."""
    opened: list[LogManager] = []

    def manage() -> LogManager:
        opened.append(LogManager(tmp_path / "data", LogConfig()))
        return opened[-1]

    yield manage
    for manager in opened:
        manager.close()


def _kill(manager: LogManager) -> None:
    """What the system does for a process that dies: no file is written, the lock is gone."""
    for log in list(manager._logs.values()):
        log.abandon()
    manager._logs.clear()
    assert manager._lock is not None
    os.close(manager._lock)
    manager._lock = None


def _folders(manager: LogManager) -> list[str]:
    return files.directories_in(manager.directory)


def test_a_partition_is_created_and_found_again(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    assert manager.get("orders", 3) is None
    log = manager.open("orders", 3, ID)
    assert manager.open("orders", 3, ID) is log is manager.get("orders", 3)
    assert log.directory == manager.directory / "orders-3"
    log.append(batch_of(2), 0)
    manager.close()
    with pytest.raises(LogClosed):
        log.append(batch_of(1), 0)
    assert len(records_in(manage().open("orders", 3, ID))) == 2


def test_a_partition_may_have_a_configuration_of_its_own(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    assert manager.open("a", 0, ID).config == LogConfig()
    assert manager.open("a", 1, ID, LogConfig(segment_bytes=1000)).config.segment_bytes == 1000


def test_partition_metadata_is_kafkas_to_the_byte(manage: Callable[[], LogManager]) -> None:
    log = manage().open("orders", 0, ID)
    assert (log.directory / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


# -- one owner


def test_a_second_manager_is_refused_with_the_name_of_the_directory(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    with pytest.raises(DataDirectoryInUse, match=str(manager.directory)):
        manage()
    manager.close()
    manage()


def test_the_lock_of_a_process_that_died_is_free(tmp_path: Path, manage: Callable[[], LogManager]) -> None:
    script = (
        "import os, sys; from pathlib import Path; from uuid import UUID\n"
        "from pylog.storage.manager import LogManager; from pylog.storage.log import LogConfig\n"
        "from tests.support.logs import batch_of\n"
        "log = LogManager(Path(sys.argv[1]), LogConfig()).open('orders', 0, UUID(int=1))\n"
        "log.append(batch_of(3), 0); print('ready', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(DataDirectoryInUse):
            manage()
        process.kill()
    manager = manage()
    assert not manager.clean
    assert len(records_in(manager.open("orders", 0, UUID(int=1)))) == 3


# -- the marker


def test_a_clean_stop_leaves_a_marker_and_a_start_takes_it(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    manager.open("orders", 0, ID)
    marker = manager.directory / MARKER
    assert not marker.exists()
    manager.close()
    manager.close()
    assert marker.exists()
    assert manage().clean
    assert not marker.exists()


def test_a_killed_manager_leaves_no_marker_and_the_next_recovers(
    manage: Callable[[], LogManager], caplog: pytest.LogCaptureFixture
) -> None:
    manager = manage()
    log = manager.open("orders", 0, ID)
    log.append(batch_of(2), 0)
    log.append(batch_of(2), 0)
    manager.close()
    _kill(manage())
    path = log.directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"x")  # only a checksum tells
    manager = manage()
    assert not manager.clean
    assert len(records_in(manager.open("orders", 0, ID))) == 2
    assert "cut at byte" in caplog.text


def test_a_log_that_was_never_recovered_is_not_called_clean(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    for partition in range(2):
        manager.open("orders", partition, ID)
    _kill(manager)
    manager = manage()
    manager.open("orders", 0, ID)
    manager.close()
    assert not (manager.directory / MARKER).exists()
    manager = manage()
    for partition in range(2):
        manager.open("orders", partition, ID)
    manager.close()
    assert (manager.directory / MARKER).exists()


def test_a_log_that_cannot_be_closed_leaves_no_marker_and_the_others_are_closed(
    manage: Callable[[], LogManager], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manage()
    logs = [manager.open("orders", partition, ID) for partition in range(3)]
    for log in logs:
        log.append(batch_of(1), 0)
    write_at = files.write_at

    def full(path: Path, position: int, data: files.Buffer) -> None:
        if path.parent.name == "orders-1":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_at(path, position, data)

    with monkeypatch.context() as context:
        context.setattr(files, "write_at", full)
        manager.close()
    assert "orders-1 could not be closed" in caplog.text
    assert not (manager.directory / MARKER).exists()
    assert (logs[2].directory / f"{0:020d}.timeindex").exists()
    manager = manage()
    assert all(len(records_in(manager.open("orders", partition, ID))) == 1 for partition in range(3))


def test_the_marker_goes_before_anything_changes_and_comes_last(
    manage: Callable[[], LogManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    manage().close()
    calls: list[str] = []
    for name in ("remove", "sync", "make_directory", "create_empty", "replace"):
        work: Callable[..., object] = getattr(files, name)

        def noted(path: Path, *rest: object, _work: Callable[..., object] = work, **more: object) -> object:
            calls.append(path.name)
            return _work(path, *rest, **more)

        monkeypatch.setattr(files, name, noted)
    manager = manage()
    manager.open("orders", 0, ID)
    assert calls[:2] == [MARKER, "data"]
    calls.clear()
    manager.close()
    assert calls.index(MARKER) > calls.index("orders-0")
    assert calls[-1] == "data"


# -- topic ids


def test_what_another_topic_of_the_name_left_is_set_aside(
    manage: Callable[[], LogManager], caplog: pytest.LogCaptureFixture
) -> None:
    manager = manage()
    manager.open("orders", 0, ID).append(batch_of(5), 0)
    manager.close()
    manager = manage()
    log = manager.open("orders", 0, OTHER_ID)
    assert log.log_end_offset == 0
    assert "belongs to no topic that is known" in caplog.text
    kept, aside = _folders(manager)
    assert kept == "orders-0"
    assert (aside.startswith("orders-0."), aside.endswith("-stray")) == (True, True)
    manager.close()
    assert manage().open("orders", 0, OTHER_ID).log_end_offset == 0


def test_an_open_log_is_not_handed_out_for_another_topic_of_its_name(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    manager.open("orders", 0, ID)
    with pytest.raises(ValueError, match="delete it first"):
        manager.open("orders", 0, OTHER_ID)


@pytest.mark.parametrize("text", [None, b"", b"version: 0\ntopic_id: AAEC", b"\xff\xfe\x00garbage"])
def test_a_folder_whose_id_cannot_be_read_is_adopted(manage: Callable[[], LogManager], text: bytes | None) -> None:
    manager = manage()
    log = manager.open("orders", 0, ID)
    log.append(batch_of(5), 0)
    manager.close()
    metadata = log.directory / "partition.metadata"
    before = metadata.read_bytes()
    if text is None:
        metadata.unlink()
    else:
        metadata.write_bytes(text)
    assert manage().open("orders", 0, ID).log_end_offset == 5
    assert metadata.read_bytes() == before


@pytest.mark.parametrize("topic", ["", "../escape", "a/b", "a\x00", "a b", "x" * 250, "ü"])
def test_a_topic_that_cannot_name_a_folder_is_refused(manage: Callable[[], LogManager], topic: str) -> None:
    with pytest.raises(ValueError, match="cannot name a partition"):
        manage().open(topic, 0, ID)


@pytest.mark.parametrize("topic", [".", "..", "a-1", "a.b_c-d", "__consumer_offsets", "-", "x" * 249])
def test_every_name_that_kafka_allows_works(manage: Callable[[], LogManager], topic: str) -> None:
    manager = manage()
    manager.open(topic, 12, ID).append(batch_of(1), 0)
    manager.close()
    manager = manage()
    assert manager.open(topic, 12, ID).log_end_offset == 1
    manager.sweep({(topic, 12)}, set())
    manager.delete(topic, 12)
    assert _folders(manager) == []


# -- deletion


def test_a_deleted_partition_is_gone_and_can_come_back_empty(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    log = manager.open("orders", 0, ID)
    log.append(batch_of(5), 0)
    part = log.read(0, 1 << 20)
    manager.delete("orders", 0)
    assert manager.get("orders", 0) is None
    assert _folders(manager) == []
    assert part is not None
    assert len(part.file.read_at(part.position, part.length)) == part.length
    with pytest.raises(LogClosed):
        log.read(0, 1)
    log.flush()  # one that was waiting for its turn
    assert manager.open("orders", 0, OTHER_ID).log_end_offset == 0


def test_a_partition_that_is_not_open_or_not_there_can_be_deleted(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    manager.open("orders", 0, ID)
    manager.close()
    manager = manage()
    manager.delete("orders", 0)
    manager.delete("orders", 7)
    assert _folders(manager) == []


def test_a_deletion_cut_short_is_finished_at_the_next_start(
    manage: Callable[[], LogManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(Exception):
        pass

    def crash(path: Path) -> None:
        raise Crash

    manager = manage()
    manager.open("orders", 0, ID).append(batch_of(5), 0)
    with monkeypatch.context() as context:
        context.setattr(files, "remove_tree", crash)
        with pytest.raises(Crash):
            manager.delete("orders", 0)
    (left,) = _folders(manager)
    assert left.startswith("orders-0.")
    assert left.endswith("-delete")
    _kill(manager)
    manager = manage()
    assert _folders(manager) == []
    assert manager.open("orders", 0, ID).log_end_offset == 0


def test_of_the_partitions_that_nobody_knows_the_deleted_go_and_others_are_set_aside(
    manage: Callable[[], LogManager], caplog: pytest.LogCaptureFixture
) -> None:
    manager = manage()
    ids = {"known": ID, "gone": OTHER_ID, "lost": ID, "opened": ID, "again": OTHER_ID}
    for topic, topic_id in ids.items():
        manager.open(topic, 0, topic_id).append(batch_of(1), 0)
    manager.close()
    manager = manage()
    manager.open("opened", 0, ID)
    for name in ("lost+found", "notes", "known-x", "archive-2026", "backup-01"):
        (manager.directory / name).mkdir()
    with caplog.at_level(logging.WARNING):
        manager.sweep({("known", 0), ("again", 0)}, {OTHER_ID})
    assert "lost-0 belongs to no topic" in caplog.text
    folders = _folders(manager)
    (aside,) = (name for name in folders if name.endswith("-stray"))
    assert aside.startswith("lost-0.")
    folders.remove(aside)
    assert folders == ["archive-2026", "backup-01", "known-0", "known-x", "lost+found", "notes", "opened-0"]
    assert manager.open("again", 0, ID).log_end_offset == 0


def test_strays_are_not_counted_as_logs_that_wait_for_recovery(manage: Callable[[], LogManager]) -> None:
    manager = manage()
    manager.open("gone", 0, ID)
    _kill(manager)
    manager = manage()
    manager.sweep(set(), set())
    manager.close()
    assert manage().clean


def test_a_crash_at_any_step_of_creation_leaves_a_directory_that_works(
    tmp_path: Path, manage: Callable[[], LogManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data directory as it is before every change to it, taken by the next process."""
    manager = manage()
    crashes: list[Path] = []

    def before(work: Callable[..., object]) -> Callable[..., object]:
        def recorded(*arguments: object, **keywords: object) -> object:
            crashes.append(tmp_path / f"crash-{len(crashes)}")
            shutil.copytree(manager.directory, crashes[-1])
            return work(*arguments, **keywords)

        return recorded

    with monkeypatch.context() as context:
        for name in ("make_directory", "create_empty", "write_at", "sync", "rename", "remove", "remove_tree"):
            context.setattr(files, name, before(getattr(files, name)))
        context.setattr(os, "replace", before(os.replace))
        manager.open("orders", 0, ID)
        manager.delete("orders", 0)
        manager.open("orders", 0, OTHER_ID).append(batch_of(3), 0)
        manager.close()
    assert len(crashes) > 15
    for crash in crashes:
        for topic_id in (OTHER_ID, uuid4()):
            again = LogManager(crash, LogConfig())
            log = again.open("orders", 0, topic_id)
            assert log.log_end_offset in (0, 3)
            log.append(batch_of(1), 0)
            _kill(again)


def test_a_log_opened_by_itself_needs_no_manager(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path / "orders-0", LogConfig(), Trust(clean=False))
    log.append(batch_of(1), 0)
    log.close()
    assert len(records_in(PartitionLog(tmp_path / "orders-0", LogConfig(), Trust(clean=True)))) == 1
