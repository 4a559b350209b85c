"""What `verify` found: every finding says which file, where in it, which offsets, and what is wrong."""

import enum
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PER_FILE_MAX = 100  # of a file that is all wrong the first findings tell enough


class Severity(enum.Enum):
    DAMAGE = "damage"  # what was written is not there any more, or cannot be found
    TORN = "torn tail"  # what a stop in the middle of a write leaves; the next start repairs it
    NOTE = "note"  # worth knowing, and not wrong


class Finding(NamedTuple):
    severity: Severity
    path: Path
    position: int | None  # byte of the file; line of a text file is in the message
    first_offset: int | None
    last_offset: int | None
    message: str

    def __str__(self) -> str:
        where = f"{self.severity.value}: {self.path}"
        if self.position is not None:
            where += f": byte {self.position}"
        if self.first_offset is not None:
            same = self.last_offset in (None, self.first_offset)
            where += f", offset {self.first_offset}" if same else f", offsets {self.first_offset} to {self.last_offset}"
        return f"{where}: {self.message}"


class Report:
    """Counts what was looked at, and passes each finding on as it comes."""

    def __init__(self, on_finding: Callable[[Finding], None]) -> None:
        self._on_finding = on_finding
        self._of_file: Counter[Path] = Counter()
        self.found: Counter[Severity] = Counter()
        self.partitions = 0
        self.segments = 0
        self.batches = 0
        self.records = 0
        self.log_bytes = 0
        self.files = 0

    def add(
        self,
        severity: Severity,
        path: Path,
        message: str,
        *,
        position: int | None = None,
        first_offset: int | None = None,
        last_offset: int | None = None,
    ) -> None:
        self.found[severity] += 1
        self._of_file[path] += 1
        if self._of_file[path] == PER_FILE_MAX + 1:
            message, position, first_offset, last_offset = "there is more, which is not shown", None, None, None
        if self._of_file[path] <= PER_FILE_MAX + 1:
            self._on_finding(Finding(severity, path, position, first_offset, last_offset, message))

    @property
    def verdict(self) -> Severity | None:
        """The worst that was found; None if all is sound."""
        return next((severity for severity in (Severity.DAMAGE, Severity.TORN) if self.found[severity]), None)
