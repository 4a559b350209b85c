"""The compression codecs of record batches, by their number in the batch attributes.

Readers accept what any client writes (snappy raw or in xerial frames, lz4 with linked blocks);
writers write what every client reads. Decompression never returns more than `bytes_max`, so a
few kilobytes cannot ask for all memory. Each library is imported at first use.
"""

import struct
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylog.storage.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec

if TYPE_CHECKING:
    import zstandard

Buffer = bytes | bytearray | memoryview


class _OfThread(threading.local):
    """What is dear to make and used again. It must not be used by two threads at a time."""

    def __init__(self) -> None:
        self.zstd_compressors: dict[tuple[int, bool], zstandard.ZstdCompressor] = {}  # by level, and whether near
        self.zstd_decompressor: zstandard.ZstdDecompressor | None = None


_of_thread = _OfThread()

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_BY_NAME = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
NAME_BY_CODEC = {codec: name for name, codec in CODEC_BY_NAME.items()}

DECOMPRESSED_BYTES_MAX = 1 << 30
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_LZ4_OUTPUT_BYTES_MIN = 64 * 1024
_ZSTD_LEVEL = 3  # zstd's default, and Kafka's
_ZSTD_NEAR_BYTES = 128 * 1024
_ZSTD_INPUT_BYTES = 1024  # at most 32 MB come out of that: a block takes 4 bytes and gives 128 KB


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    if codec == NONE:
        return bytes(data)
    try:
        compressor = _COMPRESS[codec]
    except KeyError:
        raise UnsupportedCodec(f"unknown compression codec {codec}") from None
    return compressor(data, level)


def decompress(codec: int, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    if codec == NONE:
        return data
    try:
        decompressor = _DECOMPRESS[codec]
    except KeyError:
        raise UnsupportedCodec(f"unknown compression codec {codec}") from None
    try:
        return decompressor(data, bytes_max)
    except (BatchTooLarge, CorruptBatch):
        raise
    except Exception as error:  # each library has an exception of its own
        raise CorruptBatch(f"{NAME_BY_CODEC[codec]} data cannot be decompressed: {error}") from error


def _too_large(bytes_max: int) -> BatchTooLarge:
    return BatchTooLarge(f"a compressed batch holds more than {bytes_max} bytes")


def _gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Buffer, bytes_max: int) -> bytes:
    decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
    out = decompressor.decompress(data, bytes_max)
    if decompressor.unconsumed_tail:
        raise _too_large(bytes_max)
    if not decompressor.eof:
        raise CorruptBatch("gzip data ends too early")
    return out


def _snappy(data: Buffer, level: int | None) -> bytes:
    """Xerial frames, as Java's producer writes them: raw snappy is refused by old Java readers."""
    import cramjam

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _unsnappy(data: Buffer, bytes_max: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _unsnappy_raw(data, bytes_max)
    parts: list[bytes] = []
    room, position, view = bytes_max, 16, memoryview(data)
    while position < len(view):
        (length,) = struct.unpack_from(">i", view, position)
        position += 4
        if length < 0 or length > len(view) - position:
            raise CorruptBatch(f"a snappy block says it has {length} bytes")
        block = _unsnappy_raw(view[position : position + length], room)
        room -= len(block)
        position += length
        parts.append(block)
    return b"".join(parts)


def _unsnappy_raw(data: Buffer, bytes_max: int) -> bytes:
    import cramjam

    if cramjam.snappy.decompress_raw_len(data) > bytes_max:  # the length stands before the data
        raise _too_large(bytes_max)
    return bytes(cramjam.snappy.decompress_raw(data))


def _lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Java refuses linked blocks. Those of 64 KB, the default, take half as much time again: for what is that short the
    # library keeps positions in 16 bits. It takes them itself where they hold all of the data.
    size = lz4.frame.BLOCKSIZE_MAX256KB
    out: bytes = lz4.frame.compress(data, compression_level=level or 0, block_linked=False, block_size=size)
    return out


def _unlz4(data: Buffer, bytes_max: int) -> bytes:
    import lz4.frame

    # the library allocates all that it may return: ask for what is likely, and go on from there
    step = max(_LZ4_OUTPUT_BYTES_MIN, 4 * len(data))
    decompressor = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = [decompressor.decompress(data, max_length=min(step, bytes_max))]
    room = bytes_max - len(parts[0])
    while not decompressor.eof:
        if decompressor.needs_input or not parts[-1]:
            raise CorruptBatch("lz4 data ends too early")
        if room == 0:
            raise _too_large(bytes_max)
        step *= 2
        parts.append(decompressor.decompress(b"", max_length=min(step, room)))
        room -= len(parts[-1])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd(data: Buffer, level: int | None) -> bytes:
    level = _ZSTD_LEVEL if level is None else level
    is_near = level == _ZSTD_LEVEL and len(data) > _ZSTD_NEAR_BYTES
    compressor = _of_thread.zstd_compressors.get((level, is_near))
    if compressor is None:
        compressor = _of_thread.zstd_compressors[level, is_near] = _zstd_compressor(level, is_near)
    return compressor.compress(data)


def _zstd_compressor(level: int, is_near: bool) -> "zstandard.ZstdCompressor":
    """A near one looks back no further than 128 KB, so that its tables stay in the processor's cache: a quarter less
    time for batches of 512 KB. What comes again from further away is not found; other levels look for it."""
    import zstandard

    if not is_near:
        return zstandard.ZstdCompressor(level=level)
    parameters = zstandard.ZstdCompressionParameters.from_level(level, source_size=_ZSTD_NEAR_BYTES)
    return zstandard.ZstdCompressor(compression_params=parameters)


def _unzstd(data: Buffer, bytes_max: int) -> bytes:
    import zstandard

    size = zstandard.frame_content_size(data)
    if size > bytes_max:
        raise _too_large(bytes_max)
    if size >= 0:
        decompressor = _of_thread.zstd_decompressor
        if decompressor is None:
            decompressor = _of_thread.zstd_decompressor = zstandard.ZstdDecompressor()
        return decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
    # Java streams, so its frames do not say their size: a little goes in at a time, and what comes out is counted
    stream = zstandard.ZstdDecompressor().decompressobj()  # not kept: it holds a window of up to 128 MB
    parts: list[bytes] = []
    room, view = bytes_max, memoryview(data)
    for start in range(0, len(view), _ZSTD_INPUT_BYTES):
        parts.append(stream.decompress(view[start : start + _ZSTD_INPUT_BYTES]))
        room -= len(parts[-1])
        if room < 0:
            raise _too_large(bytes_max)
    if not stream.eof or stream.unused_data:
        raise CorruptBatch("zstd data does not end with its frame")
    return b"".join(parts)


_COMPRESS: dict[int, Callable[[Buffer, int | None], bytes]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
_DECOMPRESS: dict[int, Callable[[Buffer, int], bytes]] = {GZIP: _gunzip, SNAPPY: _unsnappy, LZ4: _unlz4, ZSTD: _unzstd}
