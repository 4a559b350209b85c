"""The header of a batch: Kafka's own bytes, and every way in which they can be wrong."""

import struct

import pytest

from pylog.storage.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    assign,
    check,
    pack_header,
    read_header,
    read_prefix,
    stamp,
    walk,
)
from pylog.storage.errors import CorruptBatch, InvalidBatch, StorageError, UnsupportedBatch
from tests.support.logs import batch_of

TWO_RECORDS = bytes.fromhex(
    "00000000000000000000004cffffffff0220409f0d0000000000010000018bcfe568000000018bcfe56805ffffffffffff"
    "ffffffffffffffff000000021c000000046b31047631020268027816000a02010a68656c6c6f00"
)
COMMIT_MARKER = bytes.fromhex(
    "0000000000000007000000420000000302b40e86630030000000000000018bcfe568000000018bcfe56800"
    "00000000000003e80005ffffffff000000012000000008000000010c00000000000900"
)


def test_the_header_of_kafkas_batch_is_read() -> None:
    header = check(TWO_RECORDS)
    assert header.base_offset == 0
    assert header.last_offset == 1
    assert header.next_offset == 2
    assert header.size_bytes == len(TWO_RECORDS) == 88
    assert header.leader_epoch == -1
    assert (header.base_timestamp, header.max_timestamp) == (1700000000000, 1700000000005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.record_count == 2
    assert header.codec == 0
    assert header.timestamp_type == 0
    assert not header.is_control
    assert not header.is_transactional


def test_the_header_of_kafkas_control_batch_is_read() -> None:
    header = check(COMMIT_MARKER)
    assert header.is_control
    assert header.is_transactional
    assert header.attributes == CONTROL | TRANSACTIONAL
    assert (header.base_offset, header.leader_epoch) == (7, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1000, 5, -1)


def test_a_place_in_the_log_leaves_the_checksum_valid() -> None:
    batch = bytearray(TWO_RECORDS)
    assign(batch, 0, base_offset=1 << 40, leader_epoch=7)
    header = check(batch)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 7)
    assert batch[16:] == TWO_RECORDS[16:]
    assert read_prefix(batch) == (1 << 40, 88)


@pytest.mark.parametrize("byte", range(21, 88))
def test_a_flipped_bit_under_the_checksum_is_found(byte: int) -> None:
    batch = bytearray(TWO_RECORDS)
    batch[byte] ^= 0x10
    with pytest.raises(CorruptBatch):
        check(batch)


@pytest.mark.parametrize("size", range(88))
def test_a_batch_that_is_cut_off_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        check(TWO_RECORDS[:size])


@pytest.mark.parametrize(
    ("byte", "form", "value", "error"),
    [
        pytest.param(8, ">i", 48, CorruptBatch, id="length below a header"),
        pytest.param(8, ">i", -1, CorruptBatch, id="negative length"),
        pytest.param(8, ">i", 77, CorruptBatch, id="length over the buffer"),
        pytest.param(16, ">b", 1, UnsupportedBatch, id="old magic"),
        pytest.param(16, ">b", 3, UnsupportedBatch, id="unknown magic"),
        pytest.param(17, ">I", 0, CorruptBatch, id="wrong checksum"),
    ],
)
def test_a_header_that_is_not_ours_is_refused(byte: int, form: str, value: int, error: type[StorageError]) -> None:
    batch = bytearray(TWO_RECORDS)
    struct.pack_into(form, batch, byte, value)
    with pytest.raises(error):
        check(batch)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"attributes": 5}, UnsupportedBatch, id="unknown codec"),
        pytest.param({"attributes": 7}, UnsupportedBatch, id="last codec number"),
        pytest.param({"last_offset_delta": -1}, InvalidBatch, id="negative offset delta"),
        pytest.param({"record_count": -1}, InvalidBatch, id="negative count"),
        pytest.param({"record_count": 3}, InvalidBatch, id="more records than offsets"),
    ],
)
def test_a_lie_with_a_good_checksum_is_refused(changes: dict[str, int], error: type[StorageError]) -> None:
    batch = bytearray(TWO_RECORDS)
    pack_header(batch, 0, read_header(batch)._replace(**changes))
    with pytest.raises(error):
        check(batch)


def test_fewer_records_than_offsets_is_what_compaction_leaves() -> None:
    batch = bytearray(TWO_RECORDS)
    pack_header(batch, 0, read_header(batch)._replace(last_offset_delta=9))
    assert check(batch).next_offset == 10


def test_log_append_time_is_a_bit_of_the_attributes() -> None:
    batch = bytearray(TWO_RECORDS)
    pack_header(batch, 0, read_header(batch)._replace(attributes=LOG_APPEND_TIME))
    assert check(batch).timestamp_type == 1


def test_a_stamped_batch_is_as_old_as_its_place_in_the_log() -> None:
    """The first timestamp and the records' deltas stay, as in Kafka: readers of such a batch do not look at them."""
    batch = bytearray(TWO_RECORDS)
    stamped = stamp(batch, 0, read_header(batch), 1800000000000)
    header = check(batch)  # these bytes are under the CRC, which is new too
    assert header == stamped._replace(crc=header.crc)
    before = read_header(TWO_RECORDS)
    assert header == before._replace(attributes=LOG_APPEND_TIME, max_timestamp=1800000000000, crc=header.crc)
    assert header.crc != before.crc
    assert batch[HEADER_BYTES:] == TWO_RECORDS[HEADER_BYTES:]


def test_a_header_packed_again_is_the_same_bytes() -> None:
    batch = bytearray(TWO_RECORDS)
    batch[:HEADER_BYTES] = bytes(HEADER_BYTES)
    pack_header(batch, 0, read_header(TWO_RECORDS)._replace(crc=0))
    assert batch == TWO_RECORDS


def test_a_walk_leaves_out_a_batch_that_is_cut_off() -> None:
    first, second, third = batch_of(1), batch_of(2), batch_of(3)
    data = first + second + third
    assert [position for position, _ in walk(data)] == [0, len(first), len(first) + len(second)]
    assert [header.record_count for _, header in walk(data[:-1])] == [1, 2]
    assert list(walk(b"")) == []


def test_a_walk_stops_at_a_length_that_cannot_be() -> None:
    data = batch_of(1) + bytes(HEADER_BYTES)
    with pytest.raises(CorruptBatch, match="length is 0"):
        list(walk(data))
