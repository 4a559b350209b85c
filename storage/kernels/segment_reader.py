"""The batches of a segment in chunks, every one checked before anybody sees it.

What is read is intact (CRC), in order and within the segment's offsets; anything else is a DamagedSegment that names
file and position. Memory: one chunk, or one batch if it is larger.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from pylog.storage import batch as batches
from pylog.storage import codecs, records
from pylog.storage.checksum import crc32c
from pylog.storage.errors import DamagedSegment, StorageError
from pylog.storage.kernels import compact, decode
from pylog.storage.kernels.crc import SMALL_BYTES_MAX
from pylog.storage.ports import FileSystem

CHUNK_BYTES = 1 << 20  # small enough for the processor's cache: CRC, records and copies read it one after the other


class Chunk(NamedTuple):
    """Whole batches, valid until the next chunk is asked for."""

    path: Path
    position: int  # in the file
    view: memoryview
    address: int
    table: np.ndarray  # of `decode.scan_batches`
    last_offsets: np.ndarray

    @property
    def size_bytes(self) -> int:
        return int(self.table[-1, decode.POSITION] + self.table[-1, decode.SIZE_BYTES])

    def header(self, row: int) -> batches.BatchHeader:
        return batches.read_header(self.view, int(self.table[row, decode.POSITION]))

    def plain_records(self, row: int) -> np.ndarray:
        """Decompressed. The row of the table points there from now on."""
        position, size_bytes = self.table[row, decode.POSITION], self.table[row, decode.SIZE_BYTES]
        codec = int(self.table[row, decode.ATTRIBUTES]) & batches.CODEC_MASK
        try:
            plain = codecs.decompress(codec, self.view[position + batches.HEADER_BYTES : position + size_bytes])
        except StorageError as error:
            self.damaged(row, str(error))
        data = np.frombuffer(plain, np.uint8)
        self.table[row, decode.DATA_ADDRESS] = address_of(data)
        self.table[row, decode.DATA_BYTES] = len(data)
        return data

    def damaged(self, row: int, reason: str) -> NoReturn:
        raise DamagedSegment(self.path, self.position + int(self.table[row, decode.POSITION]), reason)

    def malformed(self, row: int) -> NoReturn:
        """A kernel refused the records of this batch; the plain twin says why."""
        try:
            records.decode_batch(self.view, int(self.table[row, decode.POSITION]))
        except StorageError as error:
            self.damaged(row, str(error))
        self.damaged(row, "its records are malformed")


def address_of(data: np.ndarray) -> int:
    address: int = data.__array_interface__["data"][0]
    return address


def read_segment(path: Path, size_bytes: int, offset_min: int, offset_end: int, files: FileSystem) -> Iterator[Chunk]:
    """All of its batches; their offsets are to be in [offset_min, offset_end)."""
    file = files.open(path)
    buffer = np.empty(min(CHUNK_BYTES, size_bytes), np.uint8)
    position = 0
    while position < size_bytes:
        length = min(len(buffer), size_bytes - position)
        count = file.read_into(position, buffer.data[:length])
        if count < length:
            raise DamagedSegment(path, position + count, f"the file ends here, and should have {size_bytes} bytes")
        view, address = buffer.data[:length], address_of(buffer)
        table, bad_position = decode.scan_batches(address, length)
        last_offsets = table[:, decode.BASE_OFFSET] + table[:, decode.LAST_OFFSET_DELTA]
        chunk = Chunk(path, position, view, address, table, last_offsets)
        _check_crcs(chunk)  # first: a wrong length makes whatever stands behind it look wrong
        if bad_position >= 0:
            _refuse(path, position, view, bad_position)
        if not len(table):
            buffer = np.empty(_size_of_first(path, position, view, size_bytes - position), np.uint8)
            continue
        _check_offsets(chunk, offset_min, offset_end)
        yield chunk
        offset_min = int(last_offsets[-1]) + 1
        position += chunk.size_bytes
        if len(buffer) > CHUNK_BYTES:
            buffer = np.empty(CHUNK_BYTES, np.uint8)


def _refuse(path: Path, chunk_position: int, view: memoryview, position: int) -> NoReturn:
    try:
        batches.check(view, position)
    except StorageError as error:
        raise DamagedSegment(path, chunk_position + position, str(error)) from error
    offset = batches.read_prefix(view, position)[0]
    raise DamagedSegment(path, chunk_position + position, f"base offset {offset} cannot be")


def _size_of_first(path: Path, position: int, view: memoryview, room: int) -> int:
    """Of a batch that is larger than the chunk; what it says is believed only as far as the file goes."""
    size_bytes = batches.read_prefix(view)[1] if len(view) >= batches.PREFIX_BYTES else batches.HEADER_BYTES
    if max(size_bytes, batches.HEADER_BYTES) > room:
        raise DamagedSegment(path, position, f"a batch takes {size_bytes} bytes, and {room} are left in the file")
    return size_bytes


def _check_offsets(chunk: Chunk, offset_min: int, offset_end: int) -> None:
    first = chunk.table[:, decode.BASE_OFFSET]
    wrong = first < np.concatenate(([offset_min], chunk.last_offsets[:-1] + 1))
    wrong |= chunk.last_offsets >= offset_end
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        before = offset_min if row == 0 else int(chunk.last_offsets[row - 1]) + 1
        reason = f"its offsets {first[row]} to {chunk.last_offsets[row]} are not in [{before}, {offset_end})"
        chunk.damaged(row, reason)


def _check_crcs(chunk: Chunk) -> None:
    row = compact.small_batch_with_wrong_crc(chunk.table, chunk.address)
    if row < 0:
        table, view = chunk.table, chunk.view
        large = np.flatnonzero(table[:, decode.SIZE_BYTES] > SMALL_BYTES_MAX)
        columns = [decode.POSITION, decode.SIZE_BYTES, decode.CRC]
        for number, (position, size_bytes, crc) in enumerate(table[large][:, columns].tolist()):
            if crc32c(view[position + batches.CRC_START : position + size_bytes]) != crc:
                row = int(large[number])
                break
    if row >= 0:
        _refuse(chunk.path, chunk.position, chunk.view, int(chunk.table[row, decode.POSITION]))
