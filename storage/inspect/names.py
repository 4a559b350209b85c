"""What a file or a directory of a log is, told by its name alone; pylog and Apache Kafka use the same names."""

import enum
import re
from pathlib import Path

from pylog.storage.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from pylog.storage.epochs import FILE_NAME
from pylog.storage.errors import StorageError
from pylog.storage.ports import FileSystem


class NotALog(StorageError):
    """The path is not there, or is nothing that belongs to a log."""


class Kind(enum.Enum):
    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    PRODUCERS = ".snapshot"
    RAFT_SNAPSHOT = ".checkpoint"  # of Kafka's metadata: record batches, as in a log
    EPOCHS = FILE_NAME
    OFFSETS = "offset-checkpoint"
    METADATA = "partition.metadata"


OFFSET_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS, HIGH_WATERMARKS)
CLEAN_MARKER = ".kafka_cleanshutdown"
METADATA = Kind.METADATA.value
EPOCHS = Kind.EPOCHS.value
ROOT_MARKS = (*OFFSET_CHECKPOINTS, CLEAN_MARKER, ".lock", "meta.properties")  # each of them only in a data directory

_OF_SEGMENT = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_RAFT_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint|bootstrap\.checkpoint")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
# What compaction, deletion and recovery put behind a name. Such a file is no part of the log, but can be looked at.
_LEFTOVER = re.compile(r"\.(?:deleted|cleaned|swap|overlapping|cut[-.\w]*|tmp)$")
_BY_NAME = {
    EPOCHS: Kind.EPOCHS,
    METADATA: Kind.METADATA,
    **dict.fromkeys(OFFSET_CHECKPOINTS, Kind.OFFSETS),
}


def kind_of(name: str) -> Kind | None:
    """None for what is no file of a log, or is one no longer (`.deleted`, `.cleaned` …)."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if match := _OF_SEGMENT.fullmatch(name):
        return Kind(match[2])
    return Kind.RAFT_SNAPSHOT if _RAFT_SNAPSHOT.fullmatch(name) else None


def without_leftover_suffix(name: str) -> str:
    return _LEFTOVER.sub("", name)


def offset_in(name: str) -> int:
    """The offset that begins the name of a segment's file, or of a snapshot."""
    return int(name[:20]) if name[:20].isdigit() else 0


def raft_snapshot_epoch_in(name: str) -> int | None:
    match = _RAFT_SNAPSHOT.fullmatch(name)
    return int(match[2]) if match and match[2] else None


def partition_in(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a partition's directory; None for one that is to be deleted, is stray, or is no such."""
    match = _PARTITION.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def is_partition(directory: Path, files: FileSystem) -> bool:
    return any(kind_of(name) not in (None, Kind.OFFSETS, Kind.RAFT_SNAPSHOT) for name in files.sizes_in(directory))


def is_data_directory(directory: Path, files: FileSystem) -> bool:
    names = files.sizes_in(directory)
    return any(name in names for name in ROOT_MARKS if name != ".lock") or any(
        partition_in(name) and is_partition(directory / name, files) for name in files.directories_in(directory)
    )
