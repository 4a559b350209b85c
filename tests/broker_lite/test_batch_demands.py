"""The quick look at the records of a batch for a compacted topic, against the plain decoder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.broker_lite import batch_demands
from pylog.broker_lite.batch_demands import Demands
from pylog.broker_lite.errors import RecordsRefused
from pylog.storage.batch import HEADER_BYTES, pack_header, read_header
from pylog.storage.errors import BatchTooLarge, CorruptBatch, InvalidBatch, StorageError, UnsupportedBatch
from pylog.storage.records import Record, decode_batch, encode_batch, write_varint

KEYS = Demands(1 << 20, keys=True)
GOOD = encode_batch([Record(0, 0, b"k", b"v")])
CODEC_AT = 22  # the low byte of the attributes

some_bytes = st.none() | st.binary(max_size=5) | st.integers(60, 70).map(bytes) | st.integers(8185, 8200).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=3), some_bytes), max_size=3).map(tuple)
records = st.lists(
    st.builds(Record, st.just(0), st.integers(0, 1 << 44), some_bytes, some_bytes, headers), min_size=1, max_size=5
).map(lambda some: [record._replace(offset=index) for index, record in enumerate(some)])


def verdict(batch):
    """What is wrong with the batch, or the indexes of its records without a key."""
    try:
        batch_demands.meet(memoryview(batch), KEYS)
    except RecordsRefused as refused:
        return [index for index, _ in refused.records]
    except InvalidBatch:
        return "invalid"
    return []


def plain_verdict(batch):
    try:
        decoded = decode_batch(batch)
    except StorageError:
        return "invalid"
    if [record.offset for record in decoded] != list(range(len(decoded))):
        return "invalid"
    return [record.offset for record in decoded if record.key is None]


@given(records, st.integers(0, 4))
def test_whole_batches_are_seen_as_the_plain_decoder_sees_them(some, codec):
    batch = encode_batch(some, codec=codec)
    assert verdict(batch) == plain_verdict(batch)


@given(records, st.data())
def test_so_are_batches_that_lie(some, data):
    batch = encode_batch(some)
    position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    pack_header(batch, 0, read_header(batch))
    assert verdict(batch) == plain_verdict(batch)


@given(records, st.integers(-2, 2))
def test_so_are_batches_with_another_count(some, more):
    batch = encode_batch(some)
    header = read_header(batch)
    count = max(1, header.record_count + more)
    pack_header(batch, 0, header._replace(record_count=count, last_offset_delta=count - 1))
    assert verdict(batch) == plain_verdict(batch)


def varints(*numbers):
    out = bytearray()
    for number in numbers:
        write_varint(out, number)
    return bytes(out)


def batch_with(body, length=None):
    """A batch of one record with this body, which begins with the attributes."""
    records = varints(len(body) if length is None else length) + body
    batch = bytearray(HEADER_BYTES) + records
    header = read_header(encode_batch([Record(0, 0, b"k", b"v")]))
    pack_header(batch, 0, header._replace(length=len(batch) - 12))
    return batch


@pytest.mark.parametrize(
    ("body", "length", "found"),
    [
        pytest.param(b"\0" + varints(0, 0, 0, 0, 0), None, [], id="a key and a value of no bytes"),
        pytest.param(b"\0" + varints(0, 0, -1, -1, 0), None, [0], id="no key, no value"),
        pytest.param(b"\0" + varints(0, 1, 0, 0, 0), None, "invalid", id="the offset of another record"),
        pytest.param(b"\0" + varints(0, -1, 0, 0, 0), None, "invalid", id="an offset before the first"),
        pytest.param(b"\0" + varints(0, 0, -2, 0, 0), None, "invalid", id="a key of less than none"),
        pytest.param(b"\0" + varints(0, 0, 0, -2, 0), None, "invalid", id="a value of less than none"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, -1), None, "invalid", id="fewer headers than none"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, 1, 0, -1), None, [], id="a header without a value"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, 1, -1, 0), None, "invalid", id="a header without a name"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, 1, 0, -2), None, "invalid", id="a header of less than none"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, 0), 6, [], id="as long as it says"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, 0), 5, "invalid", id="longer than it says"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, 0), 7, "invalid", id="longer than its batch"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, 0), -1, "invalid", id="shorter than nothing"),
        pytest.param(b"\0" + varints(0, 0, 0, 0, 0, 0), 6, "invalid", id="a byte behind it"),
        pytest.param(b"\0" + varints(0, 0, 9, 0, 0), None, "invalid", id="a key behind its end"),
        pytest.param(b"\0" + varints(-(1 << 63), 0, 0, 0, 0), None, [], id="64 bits of time"),
        pytest.param(b"\0" + b"\xff" * 9 + b"\x02" + varints(0, 0, 0, 0), None, "invalid", id="65 bits of time"),
        pytest.param(b"\0" + b"\xff" * 10 + b"\x01" + varints(0, 0, 0, 0), None, "invalid", id="time without an end"),
    ],
)
def test_one_record_that_lies(body, length, found):
    batch = batch_with(body, length)
    assert verdict(batch) == plain_verdict(batch) == found


@pytest.mark.parametrize("count", [64, 200, 20_000])
def test_many_records(count):
    some = [Record(n, 1_700_000_000_000 + n * 1000, b"k" if n % 7 else None, b"v") for n in range(count)]
    refused = verdict(encode_batch(some))
    assert refused == list(range(0, count, 7))[: batch_demands.RECORDS_NAMED_MAX]


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(-1, id="headers"),
        pytest.param(HEADER_BYTES, id="length of a record"),
        pytest.param(CODEC_AT, id="codec"),
    ],
)
def test_bytes_that_were_damaged_on_the_way_are_told_from_those_that_were_sent_wrong(position):
    batch = encode_batch([Record(0, 0, b"k", b"v")])
    batch[position] ^= 0x07 if position == CODEC_AT else 0x40
    with pytest.raises(CorruptBatch):
        batch_demands.meet(memoryview(batch), KEYS)
    pack_header(batch, 0, read_header(batch))
    with pytest.raises((InvalidBatch, RecordsRefused, UnsupportedBatch)):
        batch_demands.meet(memoryview(batch), KEYS)


def test_the_checksum_of_a_good_batch_is_left_to_the_log(monkeypatch):
    monkeypatch.setattr("pylog.storage.batch.crc32c", lambda data: pytest.fail("computed twice"))
    batch_demands.meet(memoryview(GOOD), KEYS)


@pytest.mark.parametrize(
    ("count", "codec", "quick"),
    [
        pytest.param(1, 0, True, id="small"),
        pytest.param(1, 4, False, id="compressed"),
        pytest.param(2_000, 0, False, id="large"),
    ],
)
def test_only_small_plain_batches_are_quick(count, codec, quick):
    batch = encode_batch([Record(n, 0, b"key", b"value") for n in range(count)], codec=codec)
    assert batch_demands.is_quick(memoryview(batch)) is quick


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_batch_that_unfolds_to_too_much_is_refused(codec):
    batch = memoryview(encode_batch([Record(0, 0, b"k", bytes(50_000))], codec=codec))
    batch_demands.meet(batch, Demands(60_000 // batch_demands.PLAIN_FACTOR_MAX, keys=True))
    with pytest.raises(BatchTooLarge):
        batch_demands.meet(batch, Demands(50_000 // batch_demands.PLAIN_FACTOR_MAX, keys=True))


def test_a_count_that_is_a_lie_ends_with_the_bytes():
    batch = batch_with(b"")
    pack_header(batch, 0, read_header(batch)._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2))
    assert verdict(batch) == "invalid"
