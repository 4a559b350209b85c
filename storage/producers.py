"""What the log knows of the producers that write to it: enough to refuse gaps, answer repeats and fence the replaced.

`check` decides and changes nothing; `applied` tells of a batch that is in the log, changes the state and decides
nothing. Live appends and the reading of a log at its opening go through `applied` alike, so the state is always what
the batches, in their order, say. The rules are Kafka's:

- A producer's batches in one epoch have sequence numbers without gaps; these count records and wrap from 2**31 - 1
  to 0. A new epoch begins with 0. One of whom nothing is known may begin with any: its records may be gone.
- The last five batches of a producer are remembered. One that comes again is answered as it was the first time.
- A smaller epoch than the last one is stale: another instance of the producer has taken over.
- A transaction is open from its first data batch to its marker. It is unstable until the marker, too, is below the
  high watermark; the last stable offset is the first offset of the first unstable one.

Two things are seen more sharply than Kafka sees them. A data batch that compaction has emptied opens no transaction:
only what was stable is compacted, so its transaction has ended, even if the marker is gone. And a control batch that
compaction has emptied still tells its producer's epoch.
"""

import re
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pylog.storage.batch import CONTROL, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader
from pylog.storage.checksum import crc32c
from pylog.storage.errors import (
    DamagedFile,
    InvalidBatch,
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleProducerEpoch,
    TransactionCoordinatorFenced,
)
from pylog.storage.ports import Buffer
from pylog.storage.transactions import AbortedTransaction, Marker

BATCHES_KEPT = 5  # producers have that many requests under way at most
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

_SEQUENCE_MAX = 0x7FFFFFFF
_NEVER = 2**63  # behind every offset
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")  # version, CRC-32C of all that follows it, number of entries
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_SNAPSHOT_NAME = re.compile(r"(\d{20})\.snapshot")


class Duplicate(NamedTuple):
    """Where the batch is that came again."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int  # of its data
    last_offset: int  # that of its marker
    last_stable_offset: int  # once the marker is replicated
    aborted: bool

    def index_entry(self) -> AbortedTransaction:
        return AbortedTransaction(self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)


class ProducerView(NamedTuple):
    """What can be told of one producer; -1 where there is nothing to tell."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_data_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


class _Batch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


_batch = partial(tuple.__new__, _Batch)  # as _make does, in half the time


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "transaction_start")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[_Batch] = []  # of this epoch, the newest last
        self.last_timestamp_ms = NO_TIMESTAMP
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_start = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def wrote(self, header: BatchHeader) -> None:
        """A batch of data of its epoch is in the log."""
        batches = self.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        base_offset, _, _, _, _, _, delta, _, timestamp_ms, _, _, first, _ = header
        last = first if first < 0 else (first + delta) & _SEQUENCE_MAX
        batches.append(_batch((first, last, base_offset, base_offset + delta, timestamp_ms)))
        self.last_timestamp_ms = timestamp_ms


class Producers:
    __slots__ = ("_producers", "_unstable", "first_marker")

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        # First offset -> offset of the marker, _NEVER while there is none. Transactions begin in the order of their
        # offsets, so the first key is the smallest: entries are added at the end only.
        self._unstable: dict[int, int] = {}
        self.first_marker = _NEVER  # the smallest value above: what the high watermark has to pass for a change

    def __len__(self) -> int:
        return len(self._producers)

    # -- deciding

    def who_goes_on_with(self, header: BatchHeader) -> _Producer | None:
        """The producer, if this is the next batch of data of its epoch, cannot be one that was here before, and has
        nothing to do with a transaction: then `check` would let it pass, and `wrote` is all that is to be told of it.
        As nearly always; there is more that may come."""
        _, _, _, _, _, attributes, _, _, _, producer_id, epoch, first, _ = header
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch or epoch < 0:
            return None
        if attributes & (CONTROL | TRANSACTIONAL) or producer.transaction_start >= 0:
            return None
        batches = producer.batches
        for kept in batches:  # behind one without a sequence number they begin anew
            if kept[0] == first:
                return None
        return producer if first == ((batches[-1][1] if batches else NO_SEQUENCE) + 1) & _SEQUENCE_MAX else None

    def check(self, headers: Sequence[BatchHeader], *, sequenced: bool = True) -> Duplicate | None:
        """Whether these data batches, all of them with a producer id, may be appended one behind the other.

        A single batch that is in the log already is found, not refused. Without `sequenced`, for what the broker
        itself writes in a producer's transaction, there are no sequence numbers to check."""
        header = headers[0]
        producer = self._producers.get(header.producer_id)
        if len(headers) == 1:
            if producer is None:
                _check_data(header, NO_PRODUCER_EPOCH, NO_SEQUENCE, False, sequenced)
                return None
            if sequenced and header.producer_epoch == producer.epoch:
                first, last = header.base_sequence, _last_sequence(header)
                for kept in producer.batches:
                    if kept.first_sequence == first and kept.last_sequence == last:
                        return Duplicate(kept.base_offset, kept.last_offset, kept.timestamp_ms)
            open_here = producer.transaction_start >= 0
            _check_data(header, producer.epoch, producer.last_sequence, open_here, sequenced)
            return None
        ahead: dict[int, tuple[int, int, bool]] = {}  # what is known once the batches before are in the log
        for header in headers:
            producer_id = header.producer_id
            if producer_id in ahead:
                known = ahead[producer_id]
            elif (producer := self._producers.get(producer_id)) is not None:
                known = producer.epoch, producer.last_sequence, producer.transaction_start >= 0
            else:
                known = NO_PRODUCER_EPOCH, NO_SEQUENCE, False
            _check_data(header, *known, sequenced)
            ahead[producer_id] = header.producer_epoch, _last_sequence(header), known[2] or header.is_transactional
        return None

    def check_marker(self, header: BatchHeader, marker: Marker, *, epoch_is_bumped: bool = False) -> None:
        """Whether this marker may be appended. With `epoch_is_bumped` (transactions of version 2) it carries an epoch
        above that of its transaction; an equal one is let pass only as a repeat, when nothing is open any more."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        epoch = header.producer_epoch
        late = epoch_is_bumped and epoch == producer.epoch and producer.transaction_start >= 0
        if late or epoch < producer.epoch:
            raise StaleProducerEpoch(
                f"a marker of epoch {epoch} comes too late for producer {header.producer_id}, "
                f"whose epoch is {producer.epoch}"
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {header.producer_id} comes from the coordinator of epoch "
                f"{marker.coordinator_epoch}, and that of epoch {producer.coordinator_epoch} has written already"
            )

    def completes(self, header: BatchHeader, marker: Marker) -> CompletedTransaction | None:
        """The transaction that this marker, at its place in the log, ends; None if the producer has none open."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.transaction_start < 0:
            return None
        first_offset, last_offset = producer.transaction_start, header.base_offset
        others = (first for first, end in self._unstable.items() if end == _NEVER and first != first_offset)
        stable = next(others, last_offset + 1)
        return CompletedTransaction(header.producer_id, first_offset, last_offset, stable, not marker.commit)

    # -- replaying

    def applied(self, header: BatchHeader, marker: Marker | None = None) -> CompletedTransaction | None:
        """A batch with a producer id is in the log, behind all that were told before. Returns the transaction that it
        has ended. `marker` is what `read_marker` found in a control batch."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        if header.attributes & CONTROL:
            producer.last_timestamp_ms = header.max_timestamp
            return None if marker is None else self._ended(producer, header, marker)
        producer.wrote(header)
        if header.attributes & TRANSACTIONAL and producer.transaction_start < 0 and header.record_count:
            producer.transaction_start = header.base_offset
            self._unstable[header.base_offset] = _NEVER
        return None

    def _ended(self, producer: _Producer, header: BatchHeader, marker: Marker) -> CompletedTransaction | None:
        completed = self.completes(header, marker)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.transaction_start = NO_OFFSET
        if completed is not None:
            self._unstable[completed.first_offset] = completed.last_offset
            self.first_marker = min(self.first_marker, completed.last_offset)
        return completed

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that have written nothing for so long, unless they have a transaction open; how many."""
        oldest_ms = now_ms - expiration_ms
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.last_timestamp_ms <= oldest_ms and producer.transaction_start < 0
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    # -- the last stable offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Of the first transaction that is open, or whose marker the high watermark had not passed when it moved."""
        return next(iter(self._unstable), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where a reader that wants committed records only has to stop. Not below the start of the log: what is
        deleted there may be part of a transaction that is still open."""
        first = self.first_unstable_offset
        return high_watermark if first is None or first > high_watermark else first

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Ended transactions are stable when their markers are below it."""
        if high_watermark > self.first_marker:
            self._unstable = {first: end for first, end in self._unstable.items() if end >= high_watermark}
            self.first_marker = min(self._unstable.values(), default=_NEVER)

    # -- telling

    def views(self) -> list[ProducerView]:
        return [_view(producer_id, producer) for producer_id, producer in self._producers.items()]

    def view(self, producer_id: int) -> ProducerView | None:
        producer = self._producers.get(producer_id)
        return None if producer is None else _view(producer_id, producer)

    # -- snapshots

    def snapshot(self) -> bytes:
        """As of now, for a file that is named after the log's next offset. Of each producer's batches only the last
        is in it, and no transaction that has ended."""
        data = bytearray(_SNAPSHOT_HEAD.size + _SNAPSHOT_ENTRY.size * len(self._producers))
        position = _SNAPSHOT_HEAD.size
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else _NO_BATCH
            _SNAPSHOT_ENTRY.pack_into(
                data,
                position,
                producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.base_offset,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
            position += _SNAPSHOT_ENTRY.size
        _SNAPSHOT_HEAD.pack_into(data, 0, _SNAPSHOT_VERSION, 0, len(self._producers))
        struct.pack_into(">I", data, _CRC_START - 4, crc32c(memoryview(data)[_CRC_START:]))
        return bytes(data)

    @classmethod
    def from_snapshot(cls, data: Buffer, path: Path) -> "Producers":
        """DamagedFile if it is not whole; `path` is for its message."""
        producers = cls()
        for view, offset_delta in snapshot_entries(data, path):
            producer = producers._producers[view.producer_id] = _Producer(view.epoch)
            producer.last_timestamp_ms = view.last_timestamp_ms
            producer.coordinator_epoch = view.coordinator_epoch
            producer.transaction_start = view.transaction_start
            last_sequence, last_offset = view.last_sequence, view.last_data_offset
            if last_offset >= 0:
                first_sequence = NO_SEQUENCE if last_sequence < 0 else (last_sequence - offset_delta) & _SEQUENCE_MAX
                batch = (first_sequence, last_sequence, last_offset - offset_delta, last_offset, view.last_timestamp_ms)
                producer.batches.append(_Batch._make(batch))
        starts = (producer.transaction_start for producer in producers._producers.values())
        producers._unstable = dict.fromkeys(sorted(start for start in starts if start >= 0), _NEVER)
        return producers


_NO_BATCH = _Batch(NO_SEQUENCE, NO_SEQUENCE, NO_OFFSET, NO_OFFSET, NO_TIMESTAMP)


def _last_sequence(header: BatchHeader) -> int:
    """Sequence numbers count offsets, so that compaction, which takes records out, leaves them as they are."""
    base_sequence = header.base_sequence
    return base_sequence if base_sequence < 0 else (base_sequence + header.last_offset_delta) & _SEQUENCE_MAX


def _check_data(header: BatchHeader, epoch: int, last_sequence: int, in_transaction: bool, sequenced: bool) -> None:
    """Against what is known of the producer: its epoch (-1: nothing), and in that epoch its last sequence number."""
    producer_id, base_sequence = header.producer_id, header.base_sequence
    if producer_id < 0 or header.producer_epoch < 0 or (base_sequence < 0 and sequenced):
        raise InvalidBatch(
            f"producer {producer_id} of epoch {header.producer_epoch} cannot send a batch of sequence {base_sequence}"
        )
    if header.producer_epoch < epoch:
        raise StaleProducerEpoch(
            f"producer {producer_id} writes in epoch {header.producer_epoch}, and epoch {epoch} has begun"
        )
    if sequenced and epoch >= 0:
        expected = (last_sequence + 1) & _SEQUENCE_MAX if header.producer_epoch == epoch else 0
        if base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {producer_id} of epoch {header.producer_epoch} sends a batch from sequence {base_sequence} "
                f"on, where {expected} is next"
            )
    if in_transaction and not header.attributes & TRANSACTIONAL:
        raise InvalidTransactionState(f"producer {producer_id} has a transaction open, and this batch is not in it")


def _view(producer_id: int, producer: _Producer) -> ProducerView:
    last = producer.batches[-1] if producer.batches else _NO_BATCH
    return ProducerView(
        producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        producer.last_timestamp_ms,
        producer.coordinator_epoch,
        producer.transaction_start,
    )


def snapshot_entries(data: Buffer, path: Path) -> Iterable[tuple[ProducerView, int]]:
    """Each producer, and how far behind the first offset of its last batch the last one is."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise DamagedFile(path, "byte 0", f"{len(data)} bytes where the head takes {_SNAPSHOT_HEAD.size}")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise DamagedFile(path, "byte 0", f"version {version}; only {_SNAPSHOT_VERSION} is known")
    found = crc32c(memoryview(data)[_CRC_START:])
    if found != crc:
        raise DamagedFile(path, "byte 2", f"CRC-32C is {found:08x}, the snapshot says {crc:08x}")
    room = len(data) - _SNAPSHOT_HEAD.size
    if count * _SNAPSHOT_ENTRY.size != room:
        raise DamagedFile(path, f"byte {_CRC_START}", f"{count} producers do not fill {room} bytes")
    entries = []
    for number, fields in enumerate(_SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :])):
        producer_id, epoch, sequence, offset, offset_delta, timestamp_ms, coordinator_epoch, start = fields
        view = ProducerView(producer_id, epoch, sequence, offset, timestamp_ms, coordinator_epoch, start)
        if producer_id < 0 or offset_delta < 0 or (0 <= offset < offset_delta):
            place = f"byte {_SNAPSHOT_HEAD.size + number * _SNAPSHOT_ENTRY.size}"
            raise DamagedFile(path, place, f"{view} with an offset delta of {offset_delta} cannot be")
        entries.append((view, offset_delta))
    return entries


def snapshot_name(offset: int) -> str:
    """Of the state before `offset`, which is the next one when the snapshot is taken."""
    return f"{offset:020d}.snapshot"


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Those of all snapshots among the files of a directory, ascending."""
    matches = (_SNAPSHOT_NAME.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in matches if match)
