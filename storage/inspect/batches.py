"""The batches of a `.log` file, one after the other, past whatever is damaged between them.

What is handed out covers the file without a gap: a `Batch` where a header stands that can be one, intact or not,
and a `Hole` where none does. Behind a hole stands a batch whose CRC is right, or the end of the file.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pylog.storage.batch import CODEC_MAX, CRC_START, HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, read_header
from pylog.storage.checksum import crc32c
from pylog.storage.index import INT32_MAX
from pylog.storage.ports import LogFile

BUFFER_BYTES = 1 << 20
_MAGIC_AT = 16
_MAGIC_BYTE = bytes([MAGIC])


class Batch(NamedTuple):
    position: int
    header: BatchHeader
    crc_is_right: bool
    problem: str | None  # what is wrong with it, in words
    data: memoryview | None  # all of it, until the next one is asked for; None if it is large or its CRC wrong


class Hole(NamedTuple):
    position: int
    size_bytes: int
    problem: str


class BatchWalk:
    """Iterate once."""

    def __init__(self, file: LogFile, size_bytes: int, base_offset: int = 0) -> None:
        """`base_offset` is the segment's: no batch of it is below, and none 2^31 above."""
        self._file = file
        self._end = size_bytes
        self._offset_min = base_offset
        self._buffer = memoryview(bytearray(max(min(BUFFER_BYTES, size_bytes), HEADER_BYTES)))
        self._start = self._filled = 0  # the buffer holds the file from `_start` on

    def __iter__(self) -> Iterator[Batch | Hole]:
        position = 0
        while position < self._end:
            header = self._header_at(position)
            problem = self._framing_problem(position, header)
            if header is not None and problem is None:
                batch = self._batch(position, header)
                behind = position + header.size_bytes
                if batch.crc_is_right:
                    yield batch
                    position = behind
                    continue
                if self._may_begin(behind):
                    yield batch._replace(data=None)  # the buffer holds what is behind it by now
                    position = behind
                    continue
                problem = batch.problem
            behind = self._next_intact(position + 1)
            yield Hole(position, behind - position, problem or "")
            position = behind

    def read(self, position: int, size_bytes: int) -> memoryview:
        """Bytes of the file, as many as there are. A batch that is larger than the buffer is read into memory of
        its own: its length was compared with the file before."""
        if position < self._start or position + size_bytes > self._start + self._filled:
            if size_bytes > len(self._buffer):
                return memoryview(self._file.read_at(position, size_bytes))
            self._start = position
            self._filled = self._file.read_into(position, self._buffer[: self._end - position])
        at = position - self._start
        return self._buffer[at : min(at + size_bytes, self._filled)]

    def _header_at(self, position: int) -> BatchHeader | None:
        front = self.read(position, min(HEADER_BYTES, self._end - position))
        return read_header(front) if len(front) == HEADER_BYTES else None

    def _framing_problem(self, position: int, header: BatchHeader | None) -> str | None:
        room = self._end - position
        if header is None:
            return f"{room} bytes are left where a batch header takes {HEADER_BYTES}"
        if header.magic != MAGIC:
            return f"record batch format v{header.magic}, where only v{MAGIC} can be"
        if header.length < HEADER_BYTES - PREFIX_BYTES or header.size_bytes > room:
            return f"the batch says it has {header.size_bytes} bytes, and {room} are there"
        return None

    def _batch(self, position: int, header: BatchHeader) -> Batch:
        if header.size_bytes <= len(self._buffer):
            data = self.read(position, header.size_bytes)
            crc = crc32c(data[CRC_START:])
        else:
            data, crc = None, self._crc_of_large(position, header.size_bytes)
        problem = None
        if crc != header.crc:
            problem = f"CRC-32C is {crc:08x}, the batch says {header.crc:08x}"
        elif header.codec > CODEC_MAX:
            problem = f"unknown compression codec {header.codec}"
        elif not 0 <= header.record_count <= header.last_offset_delta + 1 or header.last_offset_delta < 0:
            problem = f"{header.record_count} records with a last offset delta of {header.last_offset_delta}"
        return Batch(position, header, crc == header.crc, problem, data)

    def _crc_of_large(self, position: int, size_bytes: int) -> int:
        crc, at, end = 0, position + CRC_START, position + size_bytes
        while at < end:
            part = self.read(at, min(len(self._buffer), end - at))
            if not part:  # the file has become shorter: this is no CRC of anything, and will not fit
                break
            crc = crc32c(part, crc)
            at += len(part)
        return crc

    def _may_begin(self, position: int) -> bool:
        """Whether a batch may begin here, or the file ends: then the length of the one before can be believed."""
        if position == self._end:
            return True
        header = self._header_at(position)
        return header is not None and self._is_likely(header)

    def _is_likely(self, header: BatchHeader) -> bool:
        return (
            header.magic == MAGIC
            and header.length >= HEADER_BYTES - PREFIX_BYTES
            and header.codec <= CODEC_MAX
            and 0 <= header.record_count <= header.last_offset_delta + 1
            and self._offset_min <= header.base_offset <= self._offset_min + INT32_MAX
        )

    def _next_intact(self, position: int) -> int:
        """Where the next batch with a right CRC begins; the end of the file if there is none."""
        while self._end - position >= HEADER_BYTES:
            chunk = bytes(self.read(position, min(len(self._buffer), self._end - position)))
            at = chunk.find(_MAGIC_BYTE, _MAGIC_AT) - _MAGIC_AT
            while 0 <= at <= len(chunk) - HEADER_BYTES:
                header = read_header(chunk, at)
                fits = header.size_bytes <= self._end - position - at
                if fits and self._is_likely(header) and self._batch(position + at, header).crc_is_right:
                    return position + at
                at = chunk.find(_MAGIC_BYTE, at + _MAGIC_AT + 1) - _MAGIC_AT
            if len(chunk) < HEADER_BYTES:
                break
            position += len(chunk) - HEADER_BYTES + 1
        return self._end
