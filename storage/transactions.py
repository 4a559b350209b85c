"""The markers that end transactions, and the index of those that were aborted.

A marker is a control batch of one record. An aborted transaction has one entry of 34 bytes in the `.txnindex` of the
segment that holds its marker; the file comes with the first entry, so most segments have none. Entries stand in the
order of their markers. Each carries the last stable offset of its time: every transaction that is aborted later
begins there or behind, so a search may stop at an entry whose last stable offset is past its range.

The `.log` file is the truth and entries carry no checksum; what cannot be true (`check`) is rebuilt from the log.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pylog.storage.batch import CONTROL, TRANSACTIONAL
from pylog.storage.disk import DISK
from pylog.storage.errors import DamagedFile, InvalidBatch
from pylog.storage.ports import Buffer, FileSystem
from pylog.storage.records import Record, decode_batch, encode_batch

ENTRY_BYTES = 34

_ABORT = 0
_COMMIT = 1
_VERSION = 0
_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_ENTRY = struct.Struct(">hqqqq")
_CHUNK_ENTRIES = 1024


# -- markers


class Marker(NamedTuple):
    commit: bool
    coordinator_epoch: int


def encode_marker(producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int) -> bytearray:
    """The control batch, its offset and leader epoch still to be assigned."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.commit else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return encode_batch(
        [Record(0, timestamp_ms, key, value)],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def read_marker(buffer: Buffer, position: int = 0) -> Marker | None:
    """The marker in a control batch; None if compaction has emptied the batch, or its record is of another kind
    (a leader change, the head of a snapshot, what a later version may bring). Raises what is wrong with the batch."""
    records = decode_batch(buffer, position)
    if not records:
        return None
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise InvalidBatch(f"the key of a control record is {_shown(key)}, and {_KEY.size} bytes are the least")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidBatch(f"the key of a control record is of version {version}")
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise InvalidBatch(f"the value of a marker is {_shown(value)}, and {_VALUE.size} bytes are the least")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidBatch(f"the value of a marker is of version {version}")
    return Marker(kind == _COMMIT, coordinator_epoch)  # a later version may append fields, and keeps these


def _shown(data: bytes | None) -> str:
    return "null" if data is None else f"{len(data)} bytes long"


# -- aborted transactions


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int  # of its data
    last_offset: int  # that of its marker
    last_stable_offset: int  # when the marker was written


def aborted_in(
    entries: Iterable[AbortedTransaction], start_offset: int, upper_bound_offset: int
) -> list[AbortedTransaction]:
    """Those that touch [start_offset, upper_bound_offset).

    `entries` are of the segment of `start_offset` and all that follow: markers may stand behind the range. Nothing
    is drawn from the iterator once no later entry can matter, so a lazy chain of segments opens few files."""
    found = []
    for entry in entries:
        if entry.last_offset >= start_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            break
    return found


def pack_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def unpack_entries(data: Buffer, path: Path, position: int = 0) -> list[AbortedTransaction]:
    """The entries that `data`, the bytes of `path` from `position` on, holds; DamagedFile if there is anything else."""
    whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
    if whole != len(data):
        surplus = len(data) - whole
        raise DamagedFile(path, f"byte {position + whole}", f"{surplus} bytes where an entry takes {ENTRY_BYTES}")
    entries = []
    for number, (version, *fields) in enumerate(_ENTRY.iter_unpack(data)):
        if version != _VERSION:
            raise DamagedFile(path, f"byte {position + number * ENTRY_BYTES}", f"an entry of version {version}")
        entries.append(AbortedTransaction._make(fields))
    return entries


class TransactionIndex:
    """The `.txnindex` of one segment. Holds no entries: aborts are rare, and most segments have no such file. Who
    changes it also syncs it, and its directory where it has come or gone."""

    __slots__ = ("_files", "path")

    def __init__(self, path: Path, files: FileSystem = DISK) -> None:
        self.path = path
        self._files = files

    def entries(self, start_offset: int = 0) -> Iterator[AbortedTransaction]:
        """Those whose marker is at `start_offset` or behind, read bit by bit."""
        size_bytes = self._files.size_of(self.path) or 0
        count = -(-size_bytes // ENTRY_BYTES)  # also the last one if it is torn, which then is refused
        first = 0
        if count > _CHUNK_ENTRIES:
            whole = range(size_bytes // ENTRY_BYTES)
            first = bisect_left(whole, start_offset, key=lambda number: self._read(number, 1)[0].last_offset)
        for number in range(first, count, _CHUNK_ENTRIES):
            for entry in self._read(number, _CHUNK_ENTRIES):
                if entry.last_offset >= start_offset:
                    yield entry

    def append(self, entry: AbortedTransaction) -> None:
        """In the file at once; behind the last whole entry, whatever an append that failed has left there."""
        position = (self._files.size_of(self.path) or 0) // ENTRY_BYTES * ENTRY_BYTES
        try:
            self._files.write_at(self.path, position, pack_entries([entry]))
        except OSError:
            if self._files.size_of(self.path) is not None:
                self._files.truncate(self.path, position)
            raise

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """Durably: without its file a segment would seem to have none."""
        self._files.replace(self.path, pack_entries(entries), durable=True)

    def sync(self) -> None:
        if self._files.size_of(self.path):
            self._files.sync(self.path)

    def truncate(self, offset: int) -> None:
        """Forget the transactions whose markers are at `offset` or behind."""
        kept = next((number for number, entry in enumerate(self.entries()) if entry.last_offset >= offset), None)
        if kept == 0:
            self._files.remove(self.path)
        elif kept is not None:
            self._files.truncate(self.path, kept * ENTRY_BYTES)

    def check(self, base_offset: int, next_offset: int) -> None:
        """DamagedFile if the entries cannot be those of a segment with the offsets [base_offset, next_offset)."""
        previous = base_offset - 1
        for number, entry in enumerate(self.entries()):
            if entry.last_offset <= previous or entry.last_offset >= next_offset:
                reason = f"the marker at offset {entry.last_offset} is not in ({previous}, {next_offset})"
            elif entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset:
                reason = f"{entry} cannot be"
            elif not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
                reason = f"the last stable offset {entry.last_stable_offset} is behind offset {entry.last_offset}"
            else:
                previous = entry.last_offset
                continue
            raise DamagedFile(self.path, f"byte {number * ENTRY_BYTES}", reason)

    def _read(self, number: int, count: int) -> list[AbortedTransaction]:
        position = number * ENTRY_BYTES
        return unpack_entries(self._files.read_at(self.path, position, count * ENTRY_BYTES), self.path, position)
