"""What the files of a log hold, in the words of Apache Kafka's `DumpLogSegments`, a row at a time.

A row is a dictionary: `text` writes it as that tool does, and whoever wants JSON takes it as it is. Damage does not
end the dump: it has a row of its own, and what can be read behind it follows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pylog.storage import checkpoints
from pylog.storage.batch import NO_SEQUENCE, BatchHeader
from pylog.storage.codecs import NAME_BY_CODEC
from pylog.storage.disk import DISK
from pylog.storage.epochs import LeaderEpochs
from pylog.storage.errors import StorageError
from pylog.storage.index import OFFSET_ENTRY, TIME_ENTRY
from pylog.storage.inspect import names
from pylog.storage.inspect.batches import Batch, BatchWalk, Hole
from pylog.storage.inspect.indexes import IndexEntries
from pylog.storage.inspect.names import Kind, NotALog
from pylog.storage.inspect.small_files import read_metadata, read_small
from pylog.storage.ports import FileSystem
from pylog.storage.producers import snapshot_entries
from pylog.storage.records import Record, decode_batch
from pylog.storage.transactions import TransactionIndex

_SEQUENCE_MAX = 0x7FFFFFFF
_CONTROL_KINDS = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)


class Detail(NamedTuple):
    records: bool = False  # a row for each record
    data: bool = False  # with its key and value


class Row(NamedTuple):
    """`kind` is what the row is about: a file, a batch, a record, an entry, or damage."""

    kind: str
    fields: dict[str, Any]
    heading: str | None = None  # what stands there for people, if the fields do not tell it as well


class Optional(NamedTuple):
    """A number that need not be there; Java's way to print it."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


def text(row: Row) -> str:
    """The row as Kafka's tool prints it, but always on one line: what cannot be printed is escaped."""
    if row.heading is not None:
        return _printable(row.heading)
    shown = " ".join(f"{name}: {_shown(value)}" for name, value in row.fields.items() if name != "headers")
    return f"| {shown}" if row.kind == "record" else shown


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return _printable(value.decode("utf-8", "replace"))
        case list():
            return f"[{','.join(map(_printable, value))}]"
        case _:
            return str(value)


def _printable(shown: str) -> str:
    if shown.isprintable():
        return shown
    quoted = repr('"' + shown)  # a double quote makes it choose single ones
    return quoted[2:-1].replace("\\'", "'")


def dump(path: Path, detail: Detail, files: FileSystem = DISK) -> Iterator[Row]:
    """A file, or all files of a partition or a data directory. NotALog if it is nothing of ours."""
    if not files.is_directory(path):
        if files.size_of(path) is None:
            raise NotALog(f"{path} is not there")
        if names.kind_of(names.without_leftover_suffix(path.name)) is None:
            raise NotALog(f"{path}: by its name this is no file of a log")
        yield from _file(path, detail, files)
    elif names.is_partition(path, files):
        yield from _files_of(path, detail, files)
    elif names.is_data_directory(path, files):
        yield from _files_of(path, detail, files)
        for name in sorted(files.directories_in(path), key=lambda name: names.partition_in(name) or (name, -1)):
            if names.partition_in(name):
                yield from _files_of(path / name, detail, files)
    else:
        raise NotALog(f"{path} is neither the directory of a partition nor one that holds such")


def _files_of(directory: Path, detail: Detail, files: FileSystem) -> Iterator[Row]:
    for name in sorted(files.sizes_in(directory)):
        if names.kind_of(name) is not None:
            yield from _file(directory / name, detail, files)


def _file(path: Path, detail: Detail, files: FileSystem) -> Iterator[Row]:
    yield Row("file", {"file": str(path)}, f"Dumping {path}")
    try:
        yield from _contents(path, detail, files)
    except (StorageError, OSError) as error:
        yield _damage(str(error))


def _damage(message: str, **fields: Any) -> Row:
    return Row("damage", {**fields, "message": message}, message)


def _contents(path: Path, detail: Detail, files: FileSystem) -> Iterator[Row]:
    name = names.without_leftover_suffix(path.name)
    match names.kind_of(name):
        case Kind.LOG:
            offset = names.offset_in(name)
            yield Row("start", {"startOffset": offset}, f"Log starting offset: {offset}")
            yield from _log(path, offset, detail, files)
        case Kind.RAFT_SNAPSHOT:
            yield _raft_snapshot(name)
            yield from _log(path, 0, detail, files)
        case Kind.OFFSET_INDEX:
            yield from _index(path, OFFSET_ENTRY.size, files)
        case Kind.TIME_INDEX:
            yield from _index(path, TIME_ENTRY.size, files)
        case Kind.TXN_INDEX:
            for aborted in TransactionIndex(path, files).entries():
                fields = zip(("producerId", "firstOffset", "lastOffset", "lastStableOffset"), aborted, strict=True)
                yield Row("entry", {"version": 0, **dict(fields)})
        case Kind.PRODUCERS:
            yield from _snapshot(path, files)
        case Kind.EPOCHS:
            for epoch, start_offset in LeaderEpochs.decode(read_small(path, files), path).entries:
                yield Row("entry", {"epoch": epoch, "startOffset": start_offset})
        case Kind.OFFSETS:
            for (topic, partition), offset in checkpoints.decode(read_small(path, files), path).items():
                yield Row("entry", {"topic": topic, "partition": partition, "offset": offset})
        case Kind.METADATA:
            yield Row("entry", {"version": 0, "topicId": read_metadata(path, files)})


# -- record batches


def _raft_snapshot(name: str) -> Row:
    epoch = names.raft_snapshot_epoch_in(name)
    if epoch is None:
        return Row("start", {}, "KRaft bootstrap snapshot")
    end_offset = names.offset_in(name)
    fields = {"endOffset": end_offset, "epoch": epoch}
    return Row("start", fields, f"Snapshot end offset: {end_offset}, epoch: {epoch}")


def _log(path: Path, base_offset: int, detail: Detail, files: FileSystem) -> Iterator[Row]:
    size_bytes = files.size_of(path) or 0
    walk = BatchWalk(files.open(path), size_bytes, base_offset)
    for batch in walk:
        if isinstance(batch, Hole):
            at_end = batch.position + batch.size_bytes == size_bytes
            where = f"the end of {path.name}" if at_end else f"position {batch.position} of {path.name}"
            message = f"Found {batch.size_bytes} invalid bytes at {where}: {batch.problem}"
            yield _damage(message, position=batch.position, size=batch.size_bytes)
            continue
        yield Row("batch", _batch_fields(batch))
        if batch.problem is not None and batch.crc_is_right:
            yield _damage(batch.problem, position=batch.position)
        elif detail.records and batch.crc_is_right:
            yield from _records(batch, walk, detail)


def _batch_fields(batch: Batch) -> dict[str, Any]:
    header = batch.header
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": _sequence(header, header.last_offset_delta),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": Optional(header.delete_horizon_ms),
        "position": batch.position,
        _timestamp_name(header): header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": NAME_BY_CODEC.get(header.codec, f"unknown({header.codec})"),
        "crc": header.crc,
        "isvalid": batch.crc_is_right,
    }


def _timestamp_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type else "CreateTime"


def _sequence(header: BatchHeader, delta: int) -> int:
    """Sequence numbers begin anew at 0 behind the largest."""
    return NO_SEQUENCE if header.base_sequence == NO_SEQUENCE else (header.base_sequence + delta) & _SEQUENCE_MAX


def _records(batch: Batch, walk: BatchWalk, detail: Detail) -> Iterator[Row]:
    header = batch.header
    data = batch.data if batch.data is not None else walk.read(batch.position, header.size_bytes)
    try:
        records = decode_batch(data)
    except StorageError as error:
        yield _damage(f"the records of the batch at position {batch.position} cannot be read: {error}")
        return
    for record in records:
        fields: dict[str, Any] = {
            "offset": record.offset,
            _timestamp_name(header): record.timestamp_ms,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": _sequence(header, record.offset - header.base_offset),
            "headerKeys": [key for key, _ in record.headers],
        }
        if header.is_control:
            fields |= _control_fields(record)
        elif detail.data:
            fields |= {
                name: value
                for name, value in (("key", record.key), ("payload", record.value), ("headers", record.headers))
                if value is not None
            }
        yield Row("record", fields)


def _control_fields(record: Record) -> dict[str, Any]:
    key, value = record.key or b"", record.value or b""
    kind = int.from_bytes(key[2:4], "big", signed=True) if len(key) >= 4 else -1
    name = _CONTROL_KINDS[kind] if 0 <= kind < len(_CONTROL_KINDS) else "UNKNOWN"
    if name in ("ABORT", "COMMIT") and len(value) >= 6:
        return {"endTxnMarker": name, "coordinatorEpoch": int.from_bytes(value[2:6], "big", signed=True)}
    return {"controlType": f"{name}({kind})"}


# -- indexes and snapshots


def _index(path: Path, entry_bytes: int, files: FileSystem) -> Iterator[Row]:
    base_offset = names.offset_in(path.name)
    of_times = entry_bytes == TIME_ENTRY.size
    entries = IndexEntries(path, TIME_ENTRY if of_times else OFFSET_ENTRY, files.size_of(path) or 0, files)
    empty = True
    for _, first, second in entries:
        empty = False
        if of_times:
            yield Row("entry", {"timestamp": first, "offset": base_offset + second})
        else:
            yield Row("entry", {"offset": base_offset + first, "position": second})
    if entries.surplus_bytes:
        yield _damage(f"Found {entries.surplus_bytes} invalid bytes at the end of {path.name}")
    elif empty:
        yield Row("empty", {}, f"{path} is empty.")


def _snapshot(path: Path, files: FileSystem) -> Iterator[Row]:
    for view, offset_delta in snapshot_entries(read_small(path, files), path):
        fields: dict[str, Any] = {
            "producerId": view.producer_id,
            "producerEpoch": view.epoch,
            "coordinatorEpoch": view.coordinator_epoch,
            "currentTxnFirstOffset": Optional(None if view.transaction_start < 0 else view.transaction_start),
            "lastTimestamp": view.last_timestamp_ms,
        }
        if view.last_data_offset >= 0:
            fields |= {
                "firstSequence": (view.last_sequence - offset_delta) & _SEQUENCE_MAX,
                "lastSequence": view.last_sequence,
                "lastOffset": view.last_data_offset,
                "offsetDelta": offset_delta,
                "timestamp": view.last_timestamp_ms,
            }
        yield Row("entry", fields)
