"""Is everything that was written still there, and can it be found? A file, a partition or a data directory.

Checkpoints are read before the logs they speak of: under a running broker a log only grows meanwhile. What a running
broker is writing at this moment may look like a torn tail.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pylog.storage import checkpoints
from pylog.storage.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from pylog.storage.disk import DISK
from pylog.storage.errors import StorageError
from pylog.storage.inspect import names, partitions
from pylog.storage.inspect.deep import SHALLOW, Depth
from pylog.storage.inspect.findings import Report, Severity
from pylog.storage.inspect.names import Kind, NotALog
from pylog.storage.inspect.partitions import Known
from pylog.storage.inspect.small_files import read_small
from pylog.storage.ports import FileSystem


def verify(path: Path, report: Report, depth: Depth = SHALLOW, files: FileSystem = DISK) -> None:
    """Look at all that `path` is or holds, and report what is wrong with it. NotALog if it is nothing of ours."""
    if files.is_directory(path):
        if names.is_partition(path, files):
            partitions.verify_partition(path, _known_of(path, files), report, depth, files)
        elif names.is_data_directory(path, files):
            _verify_data_directory(path, report, depth, files)
        else:
            raise NotALog(f"{path} is neither the directory of a partition nor one that holds such")
        return
    if files.size_of(path) is None:
        raise NotALog(f"{path} is not there")
    kind = names.kind_of(names.without_leftover_suffix(path.name))
    if kind is None:
        raise NotALog(f"{path}: by its name this is no file of a log")
    report.files += 1
    if kind is Kind.OFFSETS:
        _read_offsets(path, report, files)
    else:
        partitions.verify_file(path, kind, report, depth, files)


def _known_of(directory: Path, files: FileSystem) -> Known:
    """What the directory around it says of a partition, if that is a data directory. Its own faults are not asked."""
    whole = Path(os.path.abspath(directory))
    try:
        return Root.of(whole.parent, Report(lambda _: None), files).known_of(whole.name)
    except OSError:
        return Known()


@dataclass
class Root:
    """What a data directory says of its partitions; nothing, if it is none."""

    clean: bool = False
    is_root: bool = False
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: Path, report: Report, files: FileSystem) -> "Root":
        present = files.sizes_in(directory)
        root = cls(clean=names.CLEAN_MARKER in present, is_root=any(name in present for name in names.ROOT_MARKS))
        for name in names.OFFSET_CHECKPOINTS:
            if name in present:
                root.offsets[name] = _read_offsets(directory / name, report, files)
        return root

    def known_of(self, directory_name: str) -> Known:
        key = names.partition_in(directory_name)
        if key is None or not self.is_root:
            return Known(clean=self.clean)
        recovery_point = self.offsets.get(RECOVERY_POINTS, {}).get(key)
        return Known(
            clean=self.clean,
            recovery_point=recovery_point if self.clean else recovery_point or 0,
            log_start_offset=self.offsets.get(LOG_START_OFFSETS, {}).get(key),
            cleaned_offset=self.offsets.get(CLEANER_OFFSETS, {}).get(key, 0),
            high_watermark=self.offsets.get(HIGH_WATERMARKS, {}).get(key),
        )


def _verify_data_directory(directory: Path, report: Report, depth: Depth, files: FileSystem) -> None:
    root = Root.of(directory, report, files)
    root.is_root = True  # if only because it holds partitions
    report.files += sum(name in names.OFFSET_CHECKPOINTS for name in files.sizes_in(directory))
    for name in _in_order(files.directories_in(directory)):
        if names.partition_in(name) is not None:
            partitions.verify_partition(directory / name, root.known_of(name), report, depth, files)
        else:
            message = "no partition of a topic by its name; not looked at"
            report.add(Severity.NOTE, directory / name, message)


def _in_order(directories: Iterable[str]) -> list[str]:
    return sorted(directories, key=lambda name: names.partition_in(name) or (name, -1))


def _read_offsets(path: Path, report: Report, files: FileSystem) -> dict[tuple[str, int], int]:
    try:
        return checkpoints.decode(read_small(path, files), path)
    except (StorageError, OSError) as error:
        partitions.report_error(path, error, report)
        return {}
