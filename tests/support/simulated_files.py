"""A file system in memory that crashes, fills up and fails on demand, all of it by seed.

Every step that changes something has a number, from 1: a test names the step at which the process stops (`crash_at`),
or looks at what a crash would leave at each of them (`before_operation`). What a crash of the machine can leave is
told in simulated_nodes.py. It keeps to the rules of pylog.storage.ports, and where those leave a choice it takes the
unkind one. Steps that are refused for their arguments (no such file) change nothing and have no number.

    files = SimulatedFiles(seed=7)                  files.before_operation = lambda: check(files.after_machine_crash(7))
    files.crash_at = 42                             work(files)
    with pytest.raises(Crashed):
        work(files)
    check(files.after_process_crash())

Made for one thread."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from pylog.storage.ports import Buffer, Clock, FileSystem, Lock, LogAppender, LogFile
from tests.support.clock import SettableClock
from tests.support.simulated_nodes import Node, SimulatedDirectory, SimulatedFile
from tests.support.simulated_steps import CountedSteps, Crashed, Write, error_for

__all__ = ["Crashed", "SimulatedFiles"]

NOTHING_SURVIVES_CHANCE = 1 / 8  # with many files, chance alone would hardly ever lose all of them


class SimulatedLogFile(LogFile):
    __slots__ = ("_file", "_files", "path")

    def __init__(self, files: "SimulatedFiles", path: Path, file: SimulatedFile) -> None:
        self.path = path
        self._files = files
        self._file = file

    def fileno(self) -> int:
        raise NotImplementedError(f"{self.path} is simulated and has no descriptor")  # no OSError: the disk is well

    def read_at(self, position: int, length: int) -> bytes:
        self._files.look("read_at", self.path)
        return part_of(self._file, self.path, position, length)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._files.look("read_into", self.path)
        data = part_of(self._file, self.path, position, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class SimulatedAppender(LogAppender):
    __slots__ = ("_file", "_files", "_path", "_torn")

    def __init__(self, files: "SimulatedFiles", path: Path, file: SimulatedFile) -> None:
        self._files = files
        self._path = path
        self._file = file
        self._torn = False

    def append(self, data: Buffer, size_bytes: int) -> None:
        if self._torn:
            self._cut(size_bytes)
        try:
            self._files.write("append", Write(self._path, self._file, size_bytes, bytes(data)))
        except OSError:
            self._torn = True
            self._cut(size_bytes)
            raise

    def _cut(self, size_bytes: int) -> None:
        """Part of the append, so it has no number. It can fail as `truncate`."""
        self._files.look("truncate", self._path)
        self._file.truncate(size_bytes, self._files.clock.now_ms())
        self._torn = False

    def sync(self) -> None:
        self._files.sync_node(self._path, self._file)


class SimulatedLock(Lock):
    def __init__(self, held: set[SimulatedFile], file: SimulatedFile) -> None:
        self._held = held
        self._file: SimulatedFile | None = file

    def release(self) -> None:
        if self._file is not None:
            self._held.remove(self._file)
            self._file = None


class SimulatedFiles(CountedSteps, FileSystem):
    def __init__(self, clock: Clock | None = None, *, seed: int = 0, root: Path = Path("/sim")) -> None:
        """`root` exists and is durable."""
        super().__init__(seed)
        self.clock: Clock = clock or SettableClock()
        self.root = root
        self.capacity_bytes: int | None = None
        self._top = SimulatedDirectory(self.clock.now_ms())
        for name in reversed(root.parts[1:]):
            self._top = SimulatedDirectory(self.clock.now_ms(), {name: self._top})
        self._locked: set[SimulatedFile] = set()
        self._names_given = 0  # by those before it too

    # -- what a test does with it

    @property
    def used_bytes(self) -> int:
        return sum(size_of_tree(node) for node in self._top.entries.values())

    def tree(self) -> dict[str, bytes | None]:
        """Every path under the root with its bytes; None for a directory."""
        node: Node = self._top
        for name in self.root.parts[1:]:
            assert isinstance(node, SimulatedDirectory)
            node = node.entries[name]
        return dict(walk(node, ""))

    def flip_bit(self, path: Path, bit_number: int) -> None:
        """On the disk: afterwards the whole file counts as synced."""
        self._file(path).flip_bit(bit_number)

    def sync_all(self) -> None:
        """No operation: for the state that a test starts from."""
        nodes: list[Node] = [self._top]
        for node in nodes:
            node.sync()
            if isinstance(node, SimulatedDirectory):
                nodes.extend(node.entries.values())

    def after_process_crash(self) -> "SimulatedFiles":
        """What was written is there, and as little of it on the disk as before. In `before_operation`, a part of the
        write under way is there too. Faults and locks are gone. This one goes on unless it has crashed."""
        forks: dict[Node, Node] = {}
        files = self._successor(self._top.fork(forks), self.seed)
        write = self._under_way
        if write is None:
            return files
        if write.file is None:
            files._tear(write, self._random())
        elif isinstance(file := forks.get(write.file), SimulatedFile):  # else it has lost its name
            files._tear(replace(write, file=file), self._random())
        return files

    def after_machine_crash(self, seed: int | None) -> "SimulatedFiles":
        """What the seed leaves of that which was not synced; None: nothing."""
        if self._under_way is not None:
            return self.after_process_crash().after_machine_crash(seed)
        random = None if seed is None else Random(seed)
        if random is not None and random.random() < NOTHING_SURVIVES_CHANCE:
            random = None
        return self._successor(self._top.after_crash(random), self.seed if seed is None else seed)

    def _successor(self, top: SimulatedDirectory, seed: int) -> "SimulatedFiles":
        files = SimulatedFiles(self.clock, seed=seed, root=self.root)
        files.capacity_bytes = self.capacity_bytes
        files._names_given = self._names_given
        files._top = top
        return files

    def _tear(self, write: Write, random: Random) -> None:
        part = random.randint(0, len(write.data))
        file = write.file
        if file is None:
            if part == 0 and random.random() < 0.5:
                return
            file = self._new_file(write.path)
        file.write(write.position, write.data[:part], self.clock.now_ms())

    def write(self, operation: str, write: Write) -> None:
        refuse_negative(write.path, write.position)
        self._begin(operation, write.path, detail=f"{len(write.data)} bytes at {write.position}", write=write)
        file = write.file or self._new_file(write.path)
        data = write.data
        if self.capacity_bytes is not None:
            fits_bytes = len(file.data) + max(self.capacity_bytes - self.used_bytes, 0) - write.position
            data = data[: max(fits_bytes, 0)]
        file.write(write.position, data, self.clock.now_ms())
        if len(data) < len(write.data):
            self._remark(f"disk full after {len(data)}")
            raise error_for(write.path, errno.ENOSPC)

    def sync_node(self, path: Path, node: Node) -> None:
        try:
            self._begin("sync", path)
        except OSError:
            node.fail_sync()
            raise
        node.sync()

    # -- finding

    def _find(self, path: Path) -> Node | None:
        if self._crashed:
            self._die()
        anchor, *names = path.parts
        assert anchor == "/", f"{path} is not absolute"
        node: Node | None = self._top
        for name in names:
            if not isinstance(node, SimulatedDirectory):
                raise error_for(path, errno.ENOTDIR)
            node = node.entries.get(name)
            if node is None:
                return None
        return node

    def _node(self, path: Path) -> Node:
        node = self._find(path)
        if node is None:
            raise error_for(path, errno.ENOENT)
        return node

    def _file(self, path: Path) -> SimulatedFile:
        node = self._node(path)
        if not isinstance(node, SimulatedFile):
            raise error_for(path, errno.EISDIR)
        return node

    def _file_if_there(self, path: Path) -> SimulatedFile | None:
        """None if it can be created."""
        if path.name in self._directory(path.parent).entries:
            return self._file(path)
        return None

    def _directory(self, path: Path) -> SimulatedDirectory:
        node = self._node(path)
        if not isinstance(node, SimulatedDirectory):
            raise error_for(path, errno.ENOTDIR)
        return node

    def _new_file(self, path: Path) -> SimulatedFile:
        file = SimulatedFile(self.clock.now_ms())
        self._directory(path.parent).change(None, path.name, file, self.clock.now_ms())
        return file

    # -- the port: looking

    def size_of(self, path: Path) -> int | None:
        self.look("size_of", path)
        node = self._find(path)
        return len(node.data) if isinstance(node, SimulatedFile) else None

    def modified_ms(self, path: Path) -> int:
        self.look("modified_ms", path)
        return self._node(path).modified_ms

    def is_directory(self, path: Path) -> bool:
        self.look("is_directory", path)
        try:
            return isinstance(self._find(path), SimulatedDirectory)
        except NotADirectoryError:  # what is below a file is none
            return False

    def sizes_in(self, directory: Path) -> dict[str, int]:
        """Backwards: a disk promises no order."""
        self.look("sizes_in", directory)
        entries = sorted(self._directory(directory).entries.items(), reverse=True)
        return {name: len(node.data) for name, node in entries if isinstance(node, SimulatedFile)}

    def directories_in(self, directory: Path) -> list[str]:
        self.look("directories_in", directory)
        entries = self._directory(directory).entries.items()
        return sorted(name for name, node in entries if isinstance(node, SimulatedDirectory))

    # -- the port: reading

    def open(self, path: Path) -> LogFile:
        self.look("open", path)
        return SimulatedLogFile(self, path, self._file(path))

    def read_at(self, path: Path, position: int, length: int) -> bytes:
        self.look("read_at", path)
        return part_of(self._file(path), path, position, length)

    # -- the port: changing

    def unused_name(self) -> str:
        self._names_given += 1
        return f"{Random(self.seed << 32 | self._names_given).getrandbits(128):032x}"

    def open_appender(self, path: Path) -> LogAppender:
        self.look("open_appender", path)
        return SimulatedAppender(self, path, self._file(path))

    def create_empty(self, path: Path) -> None:
        file = self._file_if_there(path)
        self._begin("create_empty", path)
        if file is None:
            self._new_file(path)
        else:
            file.truncate(0, self.clock.now_ms())

    def write_at(self, path: Path, position: int, data: Buffer) -> None:
        self.write("write_at", Write(path, self._file_if_there(path), position, bytes(data)))

    def truncate(self, path: Path, size_bytes: int) -> None:
        refuse_negative(path, size_bytes)
        file = self._file(path)
        self._begin("truncate", path, detail=f"to {size_bytes} bytes")
        file.truncate(size_bytes, self.clock.now_ms())

    def rename(self, old: Path, new: Path) -> None:
        if old.parent != new.parent:
            raise ValueError(f"{old} and {new} are in two directories: the port does not ask for that")
        node, replaced = self._node(old), self._find(new)
        if isinstance(node, SimulatedFile) and isinstance(replaced, SimulatedDirectory):
            raise error_for(new, errno.EISDIR)
        if isinstance(node, SimulatedDirectory) and isinstance(replaced, SimulatedFile):
            raise error_for(new, errno.ENOTDIR)
        if isinstance(replaced, SimulatedDirectory) and replaced is not node and replaced.entries:
            raise error_for(new, errno.ENOTEMPTY)
        self._begin("rename", old, new)
        if node is not replaced:
            self._directory(old.parent).change(old.name, new.name, node, self.clock.now_ms())

    def remove(self, path: Path) -> None:
        node = self._find(path)
        if isinstance(node, SimulatedDirectory):
            raise error_for(path, errno.EISDIR)
        self._begin("remove", path)
        if node is not None:
            self._directory(path.parent).change(path.name, None, None, self.clock.now_ms())

    def create_directory(self, path: Path) -> None:
        parent = self._directory(path.parent)
        if path.name in parent.entries or path == path.parent:
            raise error_for(path, errno.EEXIST)
        self._begin("create_directory", path)
        now_ms = self.clock.now_ms()
        parent.change(None, path.name, SimulatedDirectory(now_ms), now_ms)

    def remove_directory(self, path: Path) -> None:
        if self._directory(path).entries:
            raise error_for(path, errno.ENOTEMPTY)
        self._begin("remove_directory", path)
        self._directory(path.parent).change(path.name, None, None, self.clock.now_ms())

    def sync(self, path: Path) -> None:
        self.sync_node(path, self._node(path))

    def lock(self, path: Path) -> Lock | None:
        """Has no number, though it may create the file: no crash can come between that and the next step."""
        self.look("lock", path)
        file = self._file_if_there(path) or self._new_file(path)
        if file in self._locked:
            return None
        self._locked.add(file)
        return SimulatedLock(self._locked, file)


def refuse_negative(path: Path, *numbers: int) -> None:
    if min(numbers) < 0:
        raise error_for(path, errno.EINVAL)


def part_of(file: SimulatedFile, path: Path, position: int, length: int) -> bytes:
    refuse_negative(path, position, length)
    return bytes(memoryview(file.data)[position : position + length])


def size_of_tree(node: Node) -> int:
    return len(node.data) if isinstance(node, SimulatedFile) else sum(map(size_of_tree, node.entries.values()))


def walk(node: Node, path: str) -> Iterator[tuple[str, bytes | None]]:
    if isinstance(node, SimulatedFile):
        yield path, bytes(node.data)
        return
    if path:
        yield path, None
    for name, entry in sorted(node.entries.items()):
        yield from walk(entry, f"{path}/{name}" if path else name)
