"""Files that are read as a whole; none of them is ever large, so one that is says that it is no such file."""

import re
from pathlib import Path

from pylog.storage.errors import DamagedFile
from pylog.storage.ports import FileSystem

BYTES_MAX = 256 << 20  # a snapshot of five million producers

_METADATA = re.compile(rb"version: *0\ntopic_id: *([A-Za-z0-9_-]{22})\n?")


def read_small(path: Path, files: FileSystem) -> bytes:
    """FileNotFoundError if it has gone meanwhile."""
    size_bytes = files.size_of(path)
    if size_bytes is not None and size_bytes > BYTES_MAX:
        raise DamagedFile(path, "byte 0", f"{size_bytes} bytes, where {BYTES_MAX} are the most")
    data = files.read(path)
    if data is None:
        raise FileNotFoundError(f"{path} is not there")
    return data


def read_metadata(path: Path, files: FileSystem) -> str:
    """The topic id in a `partition.metadata`, as it is written there."""
    data = read_small(path, files)
    match = _METADATA.fullmatch(data)
    if match is None:
        raise DamagedFile(path, "byte 0", f"{data[:80].decode('ascii', 'replace')!r} is no version and topic id")
    return match[1].decode()
