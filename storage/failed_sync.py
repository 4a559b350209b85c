"""A disk that fails a sync forgets what it was to keep, and says of the next sync that all is well.

So a log whose disk has failed leaves a note in its directory. The note need only outlive the process: after a power cut
the disk itself tells what it has kept. Who opens a log with a note writes all of it that is not known to be on the disk
anew, into new files under the old names, so that the next flush means what it says; after that flush the note goes.
"""

import contextlib
from pathlib import Path

from pylog.storage.ports import FileSystem

NOTE_NAME = "sync-failed"
_TEMPORARY = ".tmp"
_CHUNK_BYTES = 1 << 20


def leave_note(directory: Path, files: FileSystem) -> None:
    with contextlib.suppress(OSError):  # a disk on which nothing can be written lets the next process write nothing
        files.create_empty(directory / NOTE_NAME)


def write_anew(path: Path, files: FileSystem) -> None:
    copy = path.with_name(path.name + _TEMPORARY)
    files.create_empty(copy)
    position = 0
    while chunk := files.read_at(path, position, _CHUNK_BYTES):
        files.write_at(copy, position, chunk)
        position += len(chunk)
    files.sync(copy)  # before it has the name: what is below the recovery point is on the disk already
    files.rename(copy, path)
