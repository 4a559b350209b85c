"""`verify` on a file system in memory, and ways to spoil what it looks at."""

from collections.abc import Callable
from pathlib import Path

from pylog.storage.inspect.deep import SHALLOW, Depth
from pylog.storage.inspect.findings import Finding, Report, Severity
from pylog.storage.inspect.verify import verify
from tests.support.sample_log import DATA
from tests.support.simulated_files import SimulatedFiles

Change = Callable[[SimulatedFiles, Path], None]


def look(files: SimulatedFiles, path: Path = DATA, depth: Depth = SHALLOW) -> tuple[Severity | None, list[Finding]]:
    found: list[Finding] = []
    report = Report(found.append)
    before = files.operations
    verify(path, report, depth, files)
    assert files.operations == before, f"it changed something: {files.history[before:]}"
    return report.verdict, found


def overwrite(files: SimulatedFiles, path: Path, position: int, data: bytes) -> None:
    files.write_at(path, position, data)


def append(files: SimulatedFiles, path: Path, data: bytes) -> None:
    files.write_at(path, files.size_of(path) or 0, data)


def contents(files: SimulatedFiles, path: Path) -> bytes:
    data = files.read(path)
    assert data is not None
    return data


def store(data: bytes) -> Change:
    def act(files: SimulatedFiles, path: Path) -> None:
        files.create_empty(path)
        files.write_at(path, 0, data)

    return act
