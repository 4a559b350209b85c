"""How a compacted segment takes the place of the ones it was made of, whatever happens in between.

    .cleaned   being written, or written and not yet wanted: removed at the next start
    .swap      complete and on the disk; from the moment `.log.swap` has its name it counts, and the next start finishes
    (no more)  in place
    .deleted   replaced or expired; removed after a while, or at the next start

A compacted segment covers the offsets from the first to the last of the segments it replaces (the cleaner keeps an
empty batch at its end if need be), so the `.log.swap` file alone says which they are. Of every kind of file there
is one, if only an empty one: where there is no `.swap`, the new file is in place already.
"""

import re
from pathlib import Path

from pylog.storage import failed_sync, scan
from pylog.storage.errors import DamagedSegment, StorageError
from pylog.storage.ports import FileSystem
from pylog.storage.segment import ABORTED_SUFFIX, LOG_SUFFIX, SUFFIXES

CLEANED, SWAP, DELETED, TEMPORARY = ".cleaned", ".swap", ".deleted", ".tmp"

SEGMENT_FILE = re.compile(rf"(\d{{20}})({'|'.join(map(re.escape, SUFFIXES))})")
_SWAP_FILE = re.compile(rf"(\d{{20}})({'|'.join(map(re.escape, SUFFIXES))}){re.escape(SWAP)}")


def file_of(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{base_offset:020d}{suffix}"


def promote(directory: Path, base_offset: int, files: FileSystem) -> None:
    """The cleaner's files, which are on the disk, become those that the next start would use.

    Older segments first: a value must not outlive the tombstone behind it."""
    prepare(directory, base_offset, files)
    files.sync(directory)  # the other names first
    files.rename(
        file_of(directory, base_offset, LOG_SUFFIX + CLEANED), file_of(directory, base_offset, LOG_SUFFIX + SWAP)
    )
    files.sync(directory)


def prepare(directory: Path, base_offset: int, files: FileSystem) -> None:
    """All but the log: nothing counts yet, and `undo` can take it back. May be repeated."""
    for suffix in SUFFIXES[:-1]:
        cleaned = file_of(directory, base_offset, suffix + CLEANED)
        swap = file_of(directory, base_offset, suffix + SWAP)
        if files.size_of(cleaned) is not None:
            files.rename(cleaned, swap)
        elif suffix == ABORTED_SUFFIX and files.size_of(swap) is None:
            files.create_empty(swap)


def undo(directory: Path, base_offsets: list[int], files: FileSystem) -> None:
    """The cleaner's files go, as long as none of them counts."""
    for base_offset in base_offsets:
        for suffix in SUFFIXES:
            for kind in (CLEANED, SWAP):
                files.remove(file_of(directory, base_offset, suffix + kind))


def sizes_of(directory: Path, base_offset: int, files: FileSystem) -> dict[str, int]:
    """Of the files of one segment, by their names."""
    paths = [file_of(directory, base_offset, suffix) for suffix in SUFFIXES]
    return {path.name: size for path in paths if (size := files.size_of(path)) is not None}


def take_place(directory: Path, base_offset: int, files: FileSystem) -> None:
    """From `.swap` to the names that count; the log last, because it says that there is something to finish."""
    for suffix in SUFFIXES:
        swap = file_of(directory, base_offset, suffix + SWAP)
        if suffix == LOG_SUFFIX:
            files.sync(directory)
        if files.size_of(swap) is not None:
            files.rename(swap, file_of(directory, base_offset, suffix))


def set_deleted(directory: Path, base_offset: int, files: FileSystem) -> list[Path]:
    """The new names of a segment's files, to be removed when nobody can be about to open them. May be repeated, where
    an error came in between."""
    renamed = []
    for suffix in reversed(SUFFIXES):  # the log first: without it the others are nobody's
        path = file_of(directory, base_offset, suffix)
        deleted = path.with_name(path.name + DELETED)
        if files.size_of(path) is not None:
            files.rename(path, deleted)
            renamed.append(deleted)
        elif files.size_of(deleted) is not None:
            renamed.append(deleted)
    return renamed


def remove_segment(directory: Path, base_offset: int, files: FileSystem) -> None:
    for suffix in reversed(SUFFIXES):  # the log first, as in `set_deleted`
        files.remove(file_of(directory, base_offset, suffix))


def tidy(directory: Path, files: FileSystem) -> dict[str, int]:
    """Finish or undo what a stop left half done. Returns the files that there are then, with their sizes."""
    sizes = files.sizes_in(directory)
    if not any(name.endswith((CLEANED, DELETED, SWAP, TEMPORARY)) for name in sizes):
        return sizes
    if failed_sync.NOTE_NAME in sizes:
        sizes = _deleted_anew(directory, sizes, files)
    names = sorted(sizes)
    for name in names:
        if name.endswith((CLEANED, DELETED, TEMPORARY)):
            files.remove(directory / name)
    swaps = [match for match in map(_SWAP_FILE.fullmatch, names) if match]
    complete = {int(match[1]) for match in swaps if match[2] == LOG_SUFFIX}
    for match in swaps:
        if int(match[1]) not in complete:
            files.remove(directory / match[0])
    for base_offset in sorted(complete):
        last_offset = _last_offset_of_swap(directory, base_offset, files)
        for name in names:
            replaced = SEGMENT_FILE.fullmatch(name)
            if replaced and base_offset < int(replaced[1]) <= last_offset:
                files.remove(directory / name)
        take_place(directory, base_offset, files)
        files.sync(directory)
    return files.sizes_in(directory)


def _deleted_anew(directory: Path, sizes: dict[str, int], files: FileSystem) -> dict[str, int]:
    """The sync that failed may have been the one that was to take the old names of deleted segments from the disk. It
    forgot them, and they would be back after a power cut. Another rename is another thing to sync."""
    for name in sizes:
        if name.endswith(DELETED):
            files.rename(directory / name, directory / (name + TEMPORARY))
        elif name.endswith(DELETED + TEMPORARY):  # it failed again
            files.rename(directory / name, directory / name.removesuffix(TEMPORARY))
    files.sync(directory)
    return files.sizes_in(directory)


def _last_offset_of_swap(directory: Path, base_offset: int, files: FileSystem) -> int:
    path = file_of(directory, base_offset, LOG_SUFFIX + SWAP)
    last_offset = base_offset
    end = 0
    try:
        for position, header in scan.headers(files.open(path), files.size_of(path) or 0):
            last_offset = max(last_offset, header.last_offset)
            end = position + header.size_bytes
    except StorageError as error:
        raise DamagedSegment(path, end, str(error)) from error
    return last_offset
