"""A batch on its way: filled record by record or made at once, sealed when it is first sent, kept until it is settled.

Sealing compresses the records and puts producer id, epoch, sequence and CRC in place. It is done without any lock, by
the one thread that sends.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache

from pylog.connector.client.delivery import BatchPromise
from pylog.storage import codecs
from pylog.storage.batch import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    pack_header,
    read_header,
)
from pylog.storage.checksum import crc32c
from pylog.storage.records import decode_batch, encode_batch, write_varint

Headers = Sequence[tuple[str, bytes | None]]
RECORD_OVERHEAD_BYTES_MAX = 1 + 5 + 10 + 5 + 5 + 5 + 5  # attributes, and the longest varints of a record's fields
_HEADER_OVERHEAD_BYTES_MAX = 10
_IDENTITY = struct.Struct(">qhi")  # producer id, epoch, base sequence: bytes 43 to 56
_IDENTITY_AT = 43
_CRC = struct.Struct(">I")
_CRC_AT = 17


@lru_cache(maxsize=1 << 14)
def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """No record of these takes more in a batch."""
    size = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, header in headers:
        size += _HEADER_OVERHEAD_BYTES_MAX + 4 * len(name) + len(header or b"")
    return size


class Reservation:
    """Memory that batches share: it comes free with the last of them."""

    __slots__ = ("batches", "size_bytes")

    def __init__(self, size_bytes: int, batches: int = 1) -> None:
        self.size_bytes = size_bytes
        self.batches = batches


class PendingBatch:
    __slots__ = (
        "_base_ms",
        "_identity",
        "_max_ms",
        "_plain",
        "attempts",
        "created",
        "deadline",
        "is_full",
        "order",
        "promise",
        "records",
        "reservation",
        "sequence",
    )

    def __init__(self, topic: str, partition: int, created: float, deadline: float, order: tuple[int, ...]) -> None:
        self.promise = BatchPromise(topic, partition)
        self.created = created
        self.deadline = deadline
        self.order = order  # among the batches of its partition; halves of one stand where it stood
        self.attempts = 0
        self.is_full = False  # nothing is added to it any more
        self.sequence: int | None = None  # once it has one, it was sent
        self.records: memoryview | None = None
        self.reservation = Reservation(HEADER_BYTES)
        self._identity: tuple[int, int, int] | None = None  # with which it is sealed
        self._plain: bytearray | None = bytearray(HEADER_BYTES)
        self._base_ms = self._max_ms = 0

    @staticmethod
    def of_records(
        topic: str,
        partition: int,
        records: memoryview,
        count: int,
        created: float,
        deadline: float,
        order: tuple[int, ...],
    ) -> "PendingBatch":
        """A whole batch, whose CRC need not be right."""
        batch = PendingBatch(topic, partition, created, deadline, order)
        batch._plain, batch.records = None, records
        batch.promise.record_count = count
        batch.reservation = Reservation(len(records))
        return batch

    @property
    def place(self) -> tuple[str, int]:
        return self.promise.topic, self.promise.partition

    @property
    def record_count(self) -> int:
        return self.promise.record_count

    @property
    def size_bytes(self) -> int:
        """Of its records before compression, unless they came compressed."""
        return len(self.records if self._plain is None else self._plain)  # type: ignore[arg-type]

    def has_room(self, record_bytes: int, batch_size: int) -> bool:
        """For one more; the first finds room in any batch."""
        if self.is_full or self._plain is None:
            return False
        return not self.record_count or len(self._plain) + record_bytes <= batch_size

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """Its index in the batch."""
        plain, index = self._plain, self.promise.record_count
        assert plain is not None
        if not index:
            self._base_ms = self._max_ms = timestamp_ms
        elif timestamp_ms > self._max_ms:
            self._max_ms = timestamp_ms
        parts = [b"\x00", _varint(timestamp_ms - self._base_ms), _varint(index)]
        if key is None:
            parts.append(b"\x01")
        else:
            parts += (_varint(len(key)), key)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (_varint(len(value)), value)
        parts.append(_varint(len(headers)))
        for name, header in headers:
            encoded = name.encode()
            parts += (_varint(len(encoded)), encoded)
            parts += (b"\x01",) if header is None else (_varint(len(header)), header)
        body = b"".join(parts)
        before = len(plain)
        plain += _varint(len(body))
        plain += body
        self.reservation.size_bytes += len(plain) - before
        self.promise.record_count = index + 1
        return index

    def seal(self, codec: int, level: int | None, producer_id: int, epoch: int) -> memoryview:
        """The bytes to send."""
        sequence = NO_SEQUENCE if self.sequence is None else self.sequence
        identity = (producer_id, epoch, sequence)
        if self.records is None:
            self.records = self._build(codec, level)
        elif identity == self._identity:
            return self.records  # as it was sealed before; an attempt that found no connection has sealed nothing
        _IDENTITY.pack_into(self.records, _IDENTITY_AT, *identity)
        _CRC.pack_into(self.records, _CRC_AT, crc32c(self.records[CRC_START:]))
        self._identity = identity
        return self.records

    def _build(self, codec: int, level: int | None) -> memoryview:
        plain = self._plain
        assert plain is not None
        if codec != codecs.NONE:
            plain = bytearray(HEADER_BYTES) + codecs.compress(codec, memoryview(plain)[HEADER_BYTES:], level)
        self._plain = None
        header = BatchHeader(
            base_offset=0,
            length=len(plain) - 12,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec,
            last_offset_delta=self.record_count - 1,
            base_timestamp=self._base_ms,
            max_timestamp=self._max_ms,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=self.record_count,
        )
        pack_header(plain, 0, header)
        return memoryview(plain)

    def split(self, level: int | None) -> "tuple[PendingBatch, PendingBatch]":
        """Two batches with a half of its records each: it was too large for the broker, and they may not be. Slow, and
        rare: records are decoded and encoded one by one."""
        assert self.records is not None
        codec = read_header(self.records).codec
        found = decode_batch(self.records)
        middle = len(found) // 2
        halves: list[PendingBatch] = []
        for part in (found[:middle], found[middle:]):
            moved = [record._replace(offset=record.offset - part[0].offset) for record in part]
            encoded = memoryview(encode_batch(moved, codec=codec, level=level))
            order = (*self.order, len(halves))
            halves.append(PendingBatch.of_records(*self.place, encoded, len(part), self.created, self.deadline, order))
        for half, promise in zip(halves, self.promise.split(middle), strict=True):
            half.promise, half.is_full = promise, True
        return halves[0], halves[1]
