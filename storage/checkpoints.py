"""Kafka's text checkpoints: a version, the number of entries, one entry a line, a newline behind each line.

A file is replaced as a whole, and one that was cut anywhere is refused: the last line lacks its newline, or lines are
missing. There is no checksum; whoever uses an offset from here looks whether the log can have it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pylog.storage.disk import DISK
from pylog.storage.errors import DamagedFile
from pylog.storage.ports import FileSystem

# At the root of a data directory, as Kafka names them.
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_VERSION = 0
_NUMBER = re.compile(rb"\d{1,19}")
_TOPIC = re.compile(rb"[a-zA-Z0-9._-]{1,249}")
_LINES_BEFORE_ENTRIES = 2


# -- what all text checkpoints share


def encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, len(entries), *entries)).encode()


def decode_lines(data: bytes, path: Path, field_count: int) -> Iterator[tuple[int, list[bytes]]]:
    """(line number, its fields) of every entry. A file of no bytes has none: Kafka creates it before it has any."""
    if not data:
        return
    *lines, rest = data.split(b"\n")
    if rest:
        raise DamagedFile(path, f"line {len(lines) + 1}", f"{_shown(rest)} does not end in a newline")
    version = number_in(lines[0], INT32_MAX, path, 1)
    if version != _VERSION:
        raise DamagedFile(path, "line 1", f"version {version}; only {_VERSION} is known")
    if len(lines) < _LINES_BEFORE_ENTRIES:
        raise DamagedFile(path, "line 2", "the number of entries is missing")
    count = number_in(lines[1], INT32_MAX, path, 2)
    if count != len(lines) - _LINES_BEFORE_ENTRIES:
        raise DamagedFile(path, "line 2", f"{count} entries are announced, {len(lines) - _LINES_BEFORE_ENTRIES} follow")
    for number, line in enumerate(lines[_LINES_BEFORE_ENTRIES:], _LINES_BEFORE_ENTRIES + 1):
        fields = line.split()
        if len(fields) != field_count:
            raise DamagedFile(path, f"line {number}", f"{_shown(line)} has not {field_count} fields")
        yield number, fields


def number_in(field: bytes, limit: int, path: Path, line: int) -> int:
    """The number from 0 to `limit` that the field is."""
    value = int(field) if _NUMBER.fullmatch(field) else -1
    if not 0 <= value <= limit:
        raise DamagedFile(path, f"line {line}", f"{_shown(field)} is no number from 0 to {limit}")
    return value


def _shown(text: bytes) -> str:
    return repr(text[:80].decode("ascii", "replace"))


# -- offsets of partitions


def encode(offsets: Mapping[tuple[str, int], int]) -> bytes:
    return encode_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def decode(data: bytes, path: Path) -> dict[tuple[str, int], int]:
    """DamagedFile if it is malformed; `path` is for its message."""
    offsets: dict[tuple[str, int], int] = {}
    for line, (name, partition_field, offset_field) in decode_lines(data, path, 3):
        if not _TOPIC.fullmatch(name):
            raise DamagedFile(path, f"line {line}", f"{_shown(name)} cannot name a topic")
        partition = (name.decode(), number_in(partition_field, INT32_MAX, path, line))
        if partition in offsets:
            raise DamagedFile(path, f"line {line}", f"{partition[0]}-{partition[1]} is there twice")
        offsets[partition] = number_in(offset_field, INT64_MAX, path, line)
    return offsets


class OffsetCheckpoint:
    """One such file of a data directory; it is what it was, or what `store` was given."""

    __slots__ = ("_files", "path")

    def __init__(self, path: Path, files: FileSystem = DISK) -> None:
        self.path = path
        self._files = files

    def load(self) -> dict[tuple[str, int], int]:
        """By (topic, partition); empty where there is no file."""
        return decode(self._files.read(self.path) or b"", self.path)

    def store(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Durably."""
        self._files.replace(self.path, encode(offsets), durable=True)
