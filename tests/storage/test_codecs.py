"""Every codec both ways, what foreign writers write, and bombs."""

import gzip
import random
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.codecs import CODEC_BY_NAME, GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from pylog.storage.errors import BatchTooLarge, CorruptBatch, StorageError, UnsupportedBatch

CODECS = [pytest.param(codec, id=name) for name, codec in CODEC_BY_NAME.items()]
COMPRESSING = [pytest.param(codec, id=name) for name, codec in CODEC_BY_NAME.items() if codec != NONE]
TEXT = b"the quick brown fox " * 20_000  # over every block size in use


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "one byte", "400 KB"])
def test_what_is_compressed_is_decompressed(codec: int, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data
    assert bytes(decompress(codec, memoryview(compress(codec, bytearray(data))))) == data


@pytest.mark.parametrize("codec", COMPRESSING)
def test_exactly_the_limit_is_let_through(codec: int) -> None:
    assert len(decompress(codec, compress(codec, TEXT), len(TEXT))) == len(TEXT)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_more_than_the_limit_is_refused(codec: int) -> None:
    with pytest.raises(BatchTooLarge):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_cut_off_data_is_corrupt(codec: int) -> None:
    data = compress(codec, TEXT)
    with pytest.raises(CorruptBatch):
        decompress(codec, data[: len(data) // 2])


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.binary(max_size=64))
def test_any_bytes_decompress_or_raise_what_the_caller_expects(codec: int, data: bytes) -> None:
    with suppress(StorageError):
        assert len(decompress(codec, data, 1 << 20)) <= 1 << 20


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_an_unknown_codec_is_refused_by_name(codec: int) -> None:
    for work in (compress, decompress):
        with pytest.raises(UnsupportedBatch, match=str(codec)):
            work(codec, b"data")


def test_snappy_is_written_in_xerial_frames_of_java() -> None:
    data = compress(SNAPPY, TEXT)
    assert data[:16] == bytes.fromhex("82534e4150505900") + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", data, 16)
    assert bytes(cramjam.snappy.decompress_raw(data[20 : 20 + length])) == TEXT[: 32 * 1024]


def test_raw_snappy_of_librdkafka_is_read() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_a_snappy_block_longer_than_the_data_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        decompress(SNAPPY, bytes.fromhex("82534e4150505900") + struct.pack(">iii", 1, 1, 1 << 30))


def test_lz4_is_written_in_blocks_that_java_reads() -> None:
    assert not lz4.frame.get_frame_info(compress(LZ4, TEXT))["block_linked"]


def test_linked_lz4_blocks_are_read() -> None:
    assert decompress(LZ4, lz4.frame.compress(TEXT, block_linked=True)) == TEXT


def test_zstd_frames_that_do_not_say_their_size_are_read() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    data = stream.compress(TEXT) + stream.flush()
    assert zstandard.frame_content_size(data) == -1
    assert decompress(ZSTD, data) == TEXT
    with pytest.raises(BatchTooLarge):
        decompress(ZSTD, data, len(TEXT) - 1)
    with pytest.raises(CorruptBatch):
        decompress(ZSTD, data[:-5])


def test_gzip_is_read_by_others_and_others_gzip_by_us() -> None:
    assert gzip.decompress(compress(GZIP, TEXT)) == TEXT
    assert decompress(GZIP, gzip.compress(TEXT)) == TEXT


def test_a_zstd_frame_that_claims_a_huge_size_allocates_nothing() -> None:
    header = b"\x28\xb5\x2f\xfd" + bytes([0xE0]) + struct.pack("<Q", 1 << 50)
    with pytest.raises(BatchTooLarge):
        decompress(ZSTD, header)


def test_what_a_broken_frame_left_behind_is_not_seen_by_the_next() -> None:
    """Compressors and decompressors are used again, also behind one that failed."""
    whole = compress(ZSTD, TEXT)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    for damaged in (whole[:-9], unsized[:-9], b"\0" * 40):
        with pytest.raises(CorruptBatch):
            decompress(ZSTD, damaged)
        assert bytes(decompress(ZSTD, whole)) == bytes(decompress(ZSTD, unsized)) == TEXT
        assert compress(ZSTD, TEXT) == whole


def test_threads_do_not_share_what_is_used_again() -> None:
    texts = [bytes([letter]) * 300_000 + TEXT for letter in b"abcdefgh"]

    def is_kept(text: bytes) -> bool:
        return all(bytes(decompress(ZSTD, compress(ZSTD, text))) == text for _ in range(20))

    with ThreadPoolExecutor(len(texts)) as threads:
        assert all(threads.map(is_kept, texts))


def test_zstd_looks_near_in_long_data_and_other_levels_look_far() -> None:
    """A page of noise that comes again after 256 KB."""
    noise = random.Random(1).randbytes(256 << 10)
    assert len(compress(ZSTD, noise + noise)) > 1.9 * len(noise)
    assert len(compress(ZSTD, noise + noise, 9)) < 1.1 * len(noise)


@pytest.mark.parametrize("level", [None, -1, 1, 3, 9])
def test_zstd_is_the_librarys_own_for_short_data_and_says_how_large_it_is(level: int | None) -> None:
    digits = random.Random(1).randbytes(64 << 10).hex().encode()
    for text in (digits[: 16 << 10], digits[: 100 << 10]):
        assert compress(ZSTD, text, level) == zstandard.ZstdCompressor(level=level or 3).compress(text)
    assert zstandard.frame_content_size(compress(ZSTD, TEXT, level)) == len(TEXT)


def test_long_data_stands_in_lz4_blocks_of_256_kb_and_short_data_in_small_ones() -> None:
    for text, block_bytes in ((TEXT, 256 << 10), (TEXT[:1000], 64 << 10)):
        found = lz4.frame.get_frame_info(compress(LZ4, text))
        assert (found["block_size"], found["block_linked"]) == (block_bytes, False)
