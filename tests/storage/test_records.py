"""The plain decoder and encoder: the oracle of the kernels, so they are held to Kafka's bytes themselves."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage import codecs
from pylog.storage.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, pack_header, read_header
from pylog.storage.errors import CorruptBatch, InvalidBatch, StorageError
from pylog.storage.records import Record, decode_batch, encode_batch, read_varint, write_varint

KAFKA_BATCH = bytes.fromhex(
    "00000000000000000000004cffffffff0220409f0d0000000000010000018bcfe568000000018bcfe56805ffffffffffff"
    "ffffffffffffffff000000021c000000046b31047631020268027816000a02010a68656c6c6f00"
)
KAFKA_RECORDS = [
    Record(0, 1700000000000, b"k1", b"v1", (("h", b"x"),)),
    Record(1, 1700000000005, None, b"hello"),
]
COMMIT_MARKER = bytes.fromhex(
    "0000000000000007000000420000000302b40e86630030000000000000018bcfe568000000018bcfe56800"
    "00000000000003e80005ffffffff000000012000000008000000010c00000000000900"
)


def test_kafkas_batch_is_decoded() -> None:
    assert decode_batch(KAFKA_BATCH) == KAFKA_RECORDS


def test_our_batch_is_kafkas_to_the_byte() -> None:
    assert encode_batch(KAFKA_RECORDS) == KAFKA_BATCH


def test_kafkas_commit_marker_is_decoded_and_encoded() -> None:
    (record,) = decode_batch(COMMIT_MARKER)
    assert record.offset == 7
    assert record.key == struct.pack(">hh", 0, 1)
    assert record.value == struct.pack(">hi", 0, 9)
    encoded = encode_batch([record], attributes=0x30, leader_epoch=3, producer_id=1000, producer_epoch=5)
    assert encoded == COMMIT_MARKER


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        ((1 << 31) - 1, "feffffff0f"),
        (-(1 << 31), "ffffffff0f"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_varints_are_zigzag_low_bits_first(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded
    assert read_varint(out, 0) == (value, len(out))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10, b"\xff" * 20], ids=["empty", "cut", "ten", "endless"])
def test_a_varint_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        read_varint(data, 0)


blobs = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3).map(tuple)
rows = st.lists(st.tuples(st.integers(0, 1 << 42), blobs, blobs, headers), min_size=1, max_size=12)


@given(rows, st.sampled_from(list(codecs.NAME_BY_CODEC)), st.integers(0, 1 << 50))
def test_what_is_encoded_is_decoded(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]], codec: int, base: int
) -> None:
    records = [Record(base + n, *row) for n, row in enumerate(rows)]
    assert decode_batch(encode_batch(records, codec=codec)) == records


def test_log_append_time_gives_every_record_the_time_of_the_batch() -> None:
    batch = encode_batch(KAFKA_RECORDS, attributes=LOG_APPEND_TIME)
    assert [record.timestamp_ms for record in decode_batch(batch)] == [1700000000005] * 2


def test_without_a_base_timestamp_no_record_has_one() -> None:
    batch = encode_batch([Record(0, -1, None, b"a"), Record(1, -1, None, b"b")])
    assert [record.timestamp_ms for record in decode_batch(batch)] == [-1, -1]


def _with_body(body: bytes, **changes: int) -> bytearray:
    """Kafka's batch with another body, and a checksum that is right for it."""
    batch = bytearray(HEADER_BYTES) + body
    header: BatchHeader = read_header(KAFKA_BATCH)._replace(length=len(batch) - 12, **changes)
    pack_header(batch, 0, header)
    return batch


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="no records"),
        pytest.param(KAFKA_BATCH[HEADER_BYTES:-1], id="last record cut"),
        pytest.param(KAFKA_BATCH[HEADER_BYTES:] + b"\x00", id="a byte too many"),
        pytest.param(b"\x00" + KAFKA_BATCH[HEADER_BYTES:], id="a record of no bytes"),
        pytest.param(b"\x01" + KAFKA_BATCH[HEADER_BYTES:], id="a record of -1 bytes"),
        pytest.param(b"\x1e" + KAFKA_BATCH[HEADER_BYTES + 1 :], id="a record one byte longer than its fields"),
        pytest.param(bytes.fromhex("0e000000010100fe") * 2, id="more headers than bytes"),
        pytest.param(bytes.fromhex("10000000010102010002") * 2, id="a header without a key"),
        pytest.param(bytes.fromhex("0c0000007e0100") * 2, id="a key longer than the record"),
        pytest.param(bytes.fromhex("0c000000050100") * 2, id="a key of -3 bytes"),
    ],
)
def test_records_that_lie_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidBatch):
        decode_batch(_with_body(body))


@given(st.binary(max_size=60), st.sampled_from([0, 1, 2, 3, 4]))
def test_any_bytes_decode_or_raise_what_the_caller_expects(body: bytes, codec: int) -> None:
    with suppress(StorageError):
        decode_batch(_with_body(body, attributes=codec))


def test_damage_is_found_before_a_record_is_looked_at() -> None:
    with pytest.raises(CorruptBatch):
        decode_batch(KAFKA_BATCH[:-1] + b"\x01")
