"""The steps of the simulated file system: every changing one has a number, from 1, and may be the last or fail.

Whether and how a step ends badly is decided before it does anything."""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import NoReturn

from tests.support.simulated_nodes import SimulatedFile

CHANGES = {"create_empty", "write_at", "append", "truncate", "rename", "remove"}
CHANGES |= {"create_directory", "remove_directory", "sync"}
LOOKS = {"size_of", "modified_ms", "is_directory", "sizes_in", "directories_in"}
LOOKS |= {"open", "open_appender", "read_at", "read_into", "lock"}


class Crashed(BaseException):
    """The process is dead. Not an Exception, so that nothing in it handles this."""


@dataclass(frozen=True)
class Write:
    """One that may be torn. `file` is None if the write creates its file."""

    path: Path
    file: SimulatedFile | None
    position: int
    data: bytes


@dataclass
class Fault:
    operation: str
    error: int
    path: str
    after: int
    times: int | None

    def strikes(self, operation: str, paths: tuple[Path, ...]) -> bool:
        if self.times == 0 or not fnmatchcase(operation, self.operation):
            return False
        if not any(fnmatchcase(str(path), self.path) for path in paths):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class CountedSteps(ABC):
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.operations = 0  # begun, the one under way included
        self.crash_at: int | None = None  # the operation that kills the process
        self.before_operation: Callable[[], None] | None = None  # may look and fork; change, only before a sync
        self._crashed = False
        self._faults: list[Fault] = []
        self._history: list[tuple[str, tuple[Path, ...], str]] = []
        self._under_way: Write | None = None

    @property
    def history(self) -> list[str]:
        """One line an operation, for the message of a test that fails."""
        return [self._line(number) for number in range(1, len(self._history) + 1)]

    @property
    def latest(self) -> str:
        """The last line of the history."""
        return self._line(len(self._history))

    def _line(self, number: int) -> str:
        operation, paths, detail = self._history[number - 1]
        return f"{number} {operation} {' -> '.join(map(str, paths))}{detail and ': '}{detail}"

    @property
    def operation(self) -> str:
        """The kind of the one under way."""
        return self._history[-1][0]

    def fail(self, operation: str, error: int, *, path: str = "*", after: int = 0, times: int | None = 1) -> None:
        """Matching operations raise OSError(error): `after` of them pass, then `times` fail (None: until `heal`).

        Both patterns are globs, whose * takes slashes too; an open file has the name that it was opened by. A write
        that fails may have written a part; a sync that fails has lost what it was to keep, for good."""
        if not any(fnmatchcase(name, operation) for name in CHANGES | LOOKS):
            raise ValueError(f"no operation is called {operation!r}")
        self._faults.append(Fault(operation, error, path, after, times))

    def heal(self) -> None:
        self._faults.clear()

    def look(self, operation: str, path: Path) -> None:
        """Before every step that changes nothing."""
        if self._crashed:
            self._die()
        if self._faults:
            self._strike(operation, path)

    def _begin(self, operation: str, *paths: Path, detail: str = "", write: Write | None = None) -> None:
        """Before every step that changes something. Raises Crashed or OSError if it is to end like that."""
        if self._crashed:
            self._die()
        self.operations += 1
        self._history.append((operation, paths, detail))
        if self.before_operation is not None:
            self._under_way = write
            try:
                self.before_operation()
            finally:
                self._under_way = None
        if self.crash_at is not None and self.operations >= self.crash_at:
            if write is not None:
                self._tear(write, self._random())
            self._crashed = True
            self._die()
        if self._faults:
            try:
                self._strike(operation, *paths)
            except OSError as error:
                self._remark(errno.errorcode.get(error.errno or 0, "failed"))
                if write is not None:
                    self._tear(write, self._random())
                raise

    @abstractmethod
    def _tear(self, write: Write, random: Random) -> None:
        """Do some first part of it."""

    def _die(self) -> NoReturn:
        raise Crashed(f"at operation {self.latest} (seed {self.seed})")

    def _strike(self, operation: str, *paths: Path) -> None:
        for fault in self._faults:
            if fault.strikes(operation, paths):
                raise error_for(paths[0], fault.error)

    def _remark(self, text: str) -> None:
        operation, paths, detail = self._history[-1]
        self._history[-1] = (operation, paths, f"{detail}, {text}" if detail else text)

    def _random(self) -> Random:
        """One for each operation, so that its chance does not depend on what happened before."""
        return Random(self.seed << 32 | self.operations)


def error_for(path: Path, error: int) -> OSError:
    return OSError(error, os.strerror(error), str(path))
