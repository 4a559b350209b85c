"""One contract, two file systems: what a test sees on the simulated one is what the disk does."""

import contextlib
import errno
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.storage.disk import DISK
from pylog.storage.ports import FileSystem, SystemClock
from tests.support.simulated_files import SimulatedFiles


class Subject:
    """A file system, a directory in it, and a way to fill it up."""

    def __init__(self, files: FileSystem, root: Path) -> None:
        self.files = files
        self.root = root

    def with_bytes(self, name: str, data: bytes) -> Path:
        self.files.write_at(self.root / name, 0, data)
        return self.root / name

    @contextlib.contextmanager
    def room_for(self, size_bytes: int) -> Iterator[None]:
        """No file grows beyond `size_bytes`; the root holds one file only."""
        if isinstance(self.files, SimulatedFiles):
            self.files.capacity_bytes = size_bytes
            yield
            self.files.capacity_bytes = None
        else:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
            try:
                yield
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(params=["disk", "simulated"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    if request.param == "disk":
        return Subject(DISK, tmp_path)
    simulated = SimulatedFiles(SystemClock())
    return Subject(simulated, simulated.root)


@pytest.fixture
def files(subject: Subject) -> FileSystem:
    return subject.files


@pytest.fixture
def root(subject: Subject) -> Path:
    return subject.root


# -- looking


def test_what_is_not_there_has_no_size_and_is_no_directory(files: FileSystem, root: Path) -> None:
    assert files.size_of(root / "none") is None
    assert files.size_of(root / "none" / "deeper") is None
    assert not files.is_directory(root / "none")
    assert files.read(root / "none") is None


def test_a_listing_tells_files_from_directories(subject: Subject, files: FileSystem, root: Path) -> None:
    for name in ("b", "c", "a"):
        subject.with_bytes(f"{name}.log", name.encode() * 3)
        files.create_directory(root / name)
    assert files.sizes_in(root) == {"a.log": 3, "b.log": 3, "c.log": 3}
    assert files.directories_in(root) == ["a", "b", "c"]
    assert files.is_directory(root / "a")
    assert not files.is_directory(root / "a.log")
    assert files.sizes_in(root / "a") == {}
    assert files.directories_in(root / "a") == []


def test_a_file_knows_when_it_was_written_and_a_rename_does_not_change_that(subject: Subject) -> None:
    before_ms = time.time_ns() // 1_000_000 - 1000  # a file system's clock may be coarse
    path = subject.with_bytes("a", b"x")
    written_ms = subject.files.modified_ms(path)
    assert before_ms <= written_ms <= time.time_ns() // 1_000_000
    subject.files.rename(path, subject.root / "b")
    assert subject.files.modified_ms(subject.root / "b") == written_ms


# -- reading


@pytest.mark.parametrize(
    ("position", "length", "expected"),
    [
        pytest.param(0, 10, b"0123456789", id="all"),
        pytest.param(3, 4, b"3456", id="within"),
        pytest.param(8, 5, b"89", id="over the end"),
        pytest.param(10, 5, b"", id="at the end"),
        pytest.param(99, 5, b"", id="behind the end"),
        pytest.param(4, 0, b"", id="nothing"),
    ],
)
def test_a_read_gets_what_is_there(subject: Subject, position: int, length: int, expected: bytes) -> None:
    path = subject.with_bytes("a", b"0123456789")
    opened = subject.files.open(path)
    assert opened.path == path
    assert subject.files.read_at(path, position, length) == expected
    assert opened.read_at(position, length) == expected
    buffer = bytearray(b"." * length)
    assert opened.read_into(position, memoryview(buffer)) == len(expected)
    assert buffer == expected + b"." * (length - len(expected))


def loses_its_name(files: FileSystem, path: Path) -> None:
    files.remove(path)


def gets_another_name(files: FileSystem, path: Path) -> None:
    files.rename(path, path.with_name("other"))


def loses_its_name_to_another(files: FileSystem, path: Path) -> None:
    files.write_at(path.with_name("other"), 0, b"other")
    files.rename(path.with_name("other"), path)


@pytest.mark.parametrize("happens", [loses_its_name, gets_another_name, loses_its_name_to_another])
def test_an_open_file_is_itself_whatever_becomes_of_its_name(
    subject: Subject, happens: Callable[[FileSystem, Path], None]
) -> None:
    path = subject.with_bytes("a", b"kept")
    opened, appender = subject.files.open(path), subject.files.open_appender(path)
    happens(subject.files, path)
    appender.append(b", and more", 4)
    appender.sync()
    assert opened.read_at(0, 99) == b"kept, and more"


# -- writing


def test_an_append_goes_where_it_is_told_and_over_what_is_there(subject: Subject) -> None:
    path = subject.with_bytes("a", b"0123 left by an interrupted append")
    appender = subject.files.open_appender(path)
    appender.append(b"45", 4)
    appender.append(bytearray(b"67"), 6)
    appender.append(memoryview(b"89"), 8)
    assert subject.files.read_at(path, 0, 10) == b"0123456789"
    assert subject.files.size_of(path) == len(b"0123 left by an interrupted append")


def test_an_append_that_fails_leaves_the_file_as_it_was_and_the_next_one_works(subject: Subject) -> None:
    path = subject.with_bytes("a", b"0123")
    appender = subject.files.open_appender(path)
    with subject.room_for(10):
        appender.append(b"456", 4)
        with pytest.raises(OSError) as failed:  # noqa: PT011 - the two differ in the number
            appender.append(b"789ab", 7)
        assert failed.value.errno in (errno.ENOSPC, errno.EFBIG)
        assert subject.files.read(path) == b"0123456"
    appender.append(b"789ab", 7)
    assert subject.files.read(path) == b"0123456789ab"


def test_a_write_that_finds_too_little_room_has_written_a_part(subject: Subject) -> None:
    path = subject.with_bytes("a", b"0123")
    with subject.room_for(6), pytest.raises(OSError):  # noqa: PT011 - as above
        subject.files.write_at(path, 4, b"45678")
    assert subject.files.read(path) == b"012345"


@pytest.mark.parametrize(
    ("position", "data", "expected"),
    [
        pytest.param(0, b"ab", b"ab23", id="over the start"),
        pytest.param(3, b"ab", b"012ab", id="over the end"),
        pytest.param(6, b"ab", b"0123\0\0ab", id="a hole reads as zeros"),
        pytest.param(9, b"", b"0123", id="nothing far away"),
    ],
)
def test_a_write_goes_to_its_position(subject: Subject, position: int, data: bytes, expected: bytes) -> None:
    path = subject.with_bytes("a", b"0123")
    subject.files.write_at(path, position, data)
    assert subject.files.read(path) == expected


def test_a_write_creates_its_file(files: FileSystem, root: Path) -> None:
    files.write_at(root / "a", 2, b"x")
    files.write_at(root / "b", 2, b"")
    assert files.sizes_in(root) == {"a": 3, "b": 0}


def test_create_empty_empties_the_file_that_is_there(subject: Subject) -> None:
    path = subject.with_bytes("a", b"0123")
    opened = subject.files.open(path)
    subject.files.create_empty(path)
    subject.files.create_empty(subject.root / "b")
    assert subject.files.sizes_in(subject.root) == {"a": 0, "b": 0}
    assert opened.read_at(0, 9) == b""  # it is the same file


@pytest.mark.parametrize(("size_bytes", "expected"), [(0, b""), (3, b"012"), (4, b"0123"), (6, b"0123\0\0")])
def test_truncate_sets_the_size(subject: Subject, size_bytes: int, expected: bytes) -> None:
    path = subject.with_bytes("a", b"0123")
    subject.files.truncate(path, size_bytes)
    assert subject.files.read(path) == expected


# -- names


def test_a_rename_takes_the_place_of_the_file_that_had_the_name(subject: Subject, root: Path) -> None:
    new, old = subject.with_bytes("new", b"new"), subject.with_bytes("old", b"old")
    subject.files.rename(new, old)
    assert subject.files.sizes_in(root) == {"old": 3}
    assert subject.files.read(old) == b"new"
    subject.files.rename(old, old)
    assert subject.files.read(old) == b"new"


def test_a_renamed_directory_takes_its_files_along(files: FileSystem, root: Path) -> None:
    files.make_directories(root / "a" / "b")
    files.write_at(root / "a" / "b" / "file", 0, b"x")
    files.rename(root / "a", root / "c")
    assert files.directories_in(root) == ["c"]
    assert files.read(root / "c" / "b" / "file") == b"x"


def test_remove_asks_for_no_file_that_is_there(subject: Subject, root: Path) -> None:
    path = subject.with_bytes("a", b"x")
    subject.files.remove(path)
    subject.files.remove(path)
    subject.files.remove(root / "none" / "deeper")
    assert subject.files.sizes_in(root) == {}


def test_directories_come_and_go(files: FileSystem, root: Path) -> None:
    assert files.make_directory(root / "a")
    assert not files.make_directory(root / "a")
    files.make_directories(root / "b" / "c" / "d")
    files.make_directories(root / "b" / "c" / "d")
    assert files.directories_in(root / "b" / "c") == ["d"]
    files.remove_directory(root / "a")
    assert files.directories_in(root) == ["b"]


def test_remove_tree_leaves_nothing(files: FileSystem, root: Path) -> None:
    files.make_directories(root / "a" / "b" / "c")
    for directory in (root / "a", root / "a" / "b", root / "a" / "b" / "c"):
        files.write_at(directory / "file", 0, b"x")
    files.remove_tree(root / "a")
    assert files.directories_in(root) == []


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("before", [None, b"a longer text before"])
def test_replace_puts_a_new_file_in_the_place_of_the_old(subject: Subject, before: bytes | None, durable: bool) -> None:
    path = subject.root / "a"
    if before is not None:
        subject.with_bytes("a", before)
    subject.files.replace(path, b"after", durable=durable)
    assert subject.files.read(path) == b"after"
    assert subject.files.sizes_in(subject.root) == {"a": 5}


def test_files_and_directories_can_be_synced(subject: Subject, root: Path) -> None:
    path = subject.with_bytes("a", b"x")
    subject.files.sync(path)
    subject.files.sync(root)
    subject.files.open_appender(path).sync()
    assert subject.files.read(path) == b"x"


# -- locks


def test_a_lock_is_held_once_until_it_is_released(files: FileSystem, root: Path) -> None:
    lock = files.lock(root / ".lock")
    assert lock is not None
    assert files.size_of(root / ".lock") == 0
    assert files.lock(root / ".lock") is None
    other = files.lock(root / ".other")
    assert other is not None
    lock.release()
    lock.release()
    again = files.lock(root / ".lock")
    assert again is not None
    lock.release()  # no longer its own
    assert files.lock(root / ".lock") is None
    again.release()
    other.release()


OTHER_PROCESS = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("held")
    else:
        print("free")
"""


@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_a_lock_keeps_other_processes_out_whichever_kind_they_ask_for(tmp_path: Path, kind: str) -> None:
    """Java's FileLock, and with it Apache Kafka, asks for the one of `lockf`."""

    def seen_by_another() -> str:
        command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / ".lock"), kind]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    lock = DISK.lock(tmp_path / ".lock")
    assert lock is not None
    assert seen_by_another() == "held"
    assert DISK.lock(tmp_path / ".lock") is None  # which must not open and close it: that would end a POSIX lock
    assert seen_by_another() == "held"
    lock.release()
    assert seen_by_another() == "free"


HOLDER = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_a_lock_that_another_process_holds_is_not_given(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ".lock"
    command = [sys.executable, "-c", HOLDER, str(path), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert DISK.lock(path) is None
        holder.communicate("")
    lock = DISK.lock(path)
    assert lock is not None
    lock.release()


def test_a_file_that_goes_while_its_directory_is_looked_at_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"1234")
    scandir = os.scandir

    @contextlib.contextmanager
    def late(directory: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(directory) as entries:
            found = list(entries)
        (tmp_path / "a").unlink()
        yield found

    monkeypatch.setattr(os, "scandir", late)
    assert DISK.sizes_in(tmp_path) == {"b": 4}


# -- refusals

NONE, FILE, EMPTY, FULL = Path("none"), Path("file"), Path("empty"), Path("full")


@pytest.mark.parametrize(
    ("expected", "step"),
    [
        pytest.param(FileNotFoundError, ("open", NONE), id="open none"),
        pytest.param(FileNotFoundError, ("open_appender", NONE), id="append to none"),
        pytest.param(FileNotFoundError, ("read_at", NONE, 0, 1), id="read none"),
        pytest.param(FileNotFoundError, ("modified_ms", NONE), id="time of none"),
        pytest.param(FileNotFoundError, ("sizes_in", NONE), id="list none"),
        pytest.param(FileNotFoundError, ("directories_in", NONE), id="directories in none"),
        pytest.param(FileNotFoundError, ("truncate", NONE, 0), id="truncate none"),
        pytest.param(FileNotFoundError, ("rename", NONE, FILE), id="rename none"),
        pytest.param(FileNotFoundError, ("sync", NONE), id="sync none"),
        pytest.param(FileNotFoundError, ("remove_directory", NONE), id="remove directory none"),
        pytest.param(FileNotFoundError, ("create_empty", NONE / "deeper"), id="create below none"),
        pytest.param(FileNotFoundError, ("write_at", NONE / "deeper", 0, b"x"), id="write below none"),
        pytest.param(FileNotFoundError, ("create_directory", NONE / "deeper"), id="directory below none"),
        pytest.param(FileNotFoundError, ("lock", NONE / "deeper"), id="lock below none"),
        pytest.param(FileExistsError, ("create_directory", FULL), id="create a directory that is there"),
        pytest.param(FileExistsError, ("create_directory", FILE), id="create a directory where a file is"),
        pytest.param(NotADirectoryError, ("size_of", FILE / "deeper"), id="size below a file"),
        pytest.param(NotADirectoryError, ("write_at", FILE / "deeper", 0, b"x"), id="write below a file"),
        pytest.param(NotADirectoryError, ("make_directory", FILE / "deeper"), id="directory below a file"),
        pytest.param(NotADirectoryError, ("sizes_in", FILE), id="list a file"),
        pytest.param(NotADirectoryError, ("remove_directory", FILE), id="remove a file as a directory"),
        pytest.param(NotADirectoryError, ("rename", FULL, FILE), id="rename a directory over a file"),
        pytest.param(IsADirectoryError, ("rename", FILE, FULL), id="rename a file over a directory"),
        pytest.param(IsADirectoryError, ("read_at", FULL, 0, 1), id="read a directory"),
        pytest.param(IsADirectoryError, ("write_at", FULL, 0, b"x"), id="write to a directory"),
        pytest.param(IsADirectoryError, ("open_appender", FULL), id="append to a directory"),
        pytest.param(IsADirectoryError, ("create_empty", FULL), id="create a file over a directory"),
        pytest.param(IsADirectoryError, ("truncate", FULL, 0), id="truncate a directory"),
        pytest.param(OSError, ("remove", FULL), id="remove a directory as a file"),
        pytest.param(OSError, ("remove_directory", FULL), id="remove a directory that is not empty"),
        pytest.param(OSError, ("rename", EMPTY, FULL), id="rename over a directory that is not empty"),
        pytest.param(OSError, ("truncate", FILE, -1), id="truncate below zero"),
        pytest.param(OSError, ("write_at", FILE, -1, b"x"), id="write below zero"),
        pytest.param(OSError, ("read_at", FILE, -1, 1), id="read below zero"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    subject: Subject, expected: type[OSError], step: tuple[object, ...]
) -> None:
    subject.with_bytes("file", b"x")
    subject.files.make_directory(subject.root / EMPTY)
    subject.files.make_directories(subject.root / FULL / "child")
    before = everything_in(subject.files, subject.root)
    with pytest.raises(expected):
        carry_out(subject.files, subject.root, step)
    assert everything_in(subject.files, subject.root) == before


def carry_out(files: FileSystem, root: Path, step: tuple[object, ...]) -> object:
    """A step is the name of a method and its arguments; paths are meant to be under `root`."""
    method, *arguments = step
    absolute = [root / argument if isinstance(argument, Path) else argument for argument in arguments]
    return getattr(files, str(method))(*absolute)


# -- any sequence


def everything_in(files: FileSystem, directory: Path) -> dict[str, object]:
    contents: dict[str, object] = {name: files.read(directory / name) for name in files.sizes_in(directory)}
    assert {name: len(files.read(directory / name) or b"") for name in contents} == files.sizes_in(directory)
    contents.update({f"{name}/": everything_in(files, directory / name) for name in files.directories_in(directory)})
    return contents


names = st.sampled_from([Path(name) for name in ("a", "b", "c", "d", "d/a", "d/b", "d/e")])
sizes = st.integers(0, 20)
blobs = st.binary(max_size=12)
steps = st.one_of(
    st.tuples(st.sampled_from(["create_empty", "remove", "make_directory", "make_directories"]), names),
    st.tuples(st.sampled_from(["remove_directory", "remove_tree", "sync", "is_directory"]), names),
    st.tuples(st.sampled_from(["append", "replace"]), names, blobs),
    st.tuples(st.just("write_at"), names, sizes, blobs),
    st.tuples(st.just("read_at"), names, sizes, sizes),
    st.tuples(st.just("truncate"), names, sizes),
    st.tuples(st.just("rename"), names, names).filter(lambda step: step[1].parent == step[2].parent),
)


def outcome_of(files: FileSystem, root: Path, step: tuple[object, ...]) -> object:
    try:
        match step:
            case "append", Path() as path, bytes(data):
                files.open_appender(root / path).append(data, files.size_of(root / path) or 0)
            case "replace", Path() as path, bytes(data):
                files.replace(root / path, data, durable=True)
            case _:
                return carry_out(files, root, step)
    except OSError as error:
        return type(error)
    return None


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=30))
def test_any_sequence_of_steps_ends_alike_on_both(sequence: list[tuple[object, ...]]) -> None:
    simulated = SimulatedFiles()
    with tempfile.TemporaryDirectory() as folder:
        for step in sequence:
            assert outcome_of(simulated, simulated.root, step) == outcome_of(DISK, Path(folder), step), step
        assert everything_in(simulated, simulated.root) == everything_in(DISK, Path(folder))
