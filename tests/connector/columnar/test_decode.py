"""The decoder against its twin: `storage.records`, record by record."""

import contextlib
import itertools
import struct
from collections.abc import Iterator
from unittest import mock

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylog.connector.columnar import decode
from pylog.connector.columnar.decode import COLUMN_TYPES, RowDecoder, arrow_schema
from pylog.storage import batch as batches
from pylog.storage import codecs
from pylog.storage.errors import BatchTooLarge, CorruptBatch, InvalidBatch, StorageError, UnsupportedBatch
from pylog.storage.records import Record, decode_batch, encode_batch

ALL = list(COLUMN_TYPES)
NOW_MS = 1_700_000_000_000
OFFSET_MAX = 2**63 - 1
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
Row = tuple[bytes | None, bytes | None, str, int, int, int, int, list[dict[str, object]] | None]


def decoded(
    decoder: RowDecoder, fetched: batches.Buffer, offset_start: int, offset_end: int
) -> tuple[list[pa.RecordBatch], int]:
    rows, next_offset = decoder.decode(fetched, offset_start, offset_end)
    return list(rows), next_offset


def plain_rows(fetched: bytes, offset_start: int, offset_end: int) -> list[Row]:
    rows: list[Row] = []
    for position, header in batches.walk(fetched):
        if header.is_control or header.next_offset <= offset_start or header.base_offset >= offset_end:
            continue
        for record in decode_batch(fetched, position):
            if offset_start <= record.offset < offset_end:
                headers = [{"key": key, "value": value} for key, value in record.headers] or None
                row = (record.key, record.value, "orders", 3, record.offset, record.timestamp_ms * 1000)
                rows.append((*row, header.timestamp_type, headers))
    return rows


def arrow_rows(arrow_batches: list[pa.RecordBatch]) -> list[Row]:
    rows = []
    for arrow_batch in arrow_batches:
        arrow_batch.validate(full=True)
        assert arrow_batch.schema.equals(arrow_schema(ALL), check_metadata=True)
        columns = [
            arrow_batch[name].cast(pa.int64()) if name == "timestamp" else arrow_batch[name]
            for name in arrow_batch.schema.names
        ]
        rows += list(zip(*(column.to_pylist() for column in columns), strict=True))
    return rows


@contextlib.contextmanager
def small_limits(rows: int, group_bytes: int, bytes_max: int) -> Iterator[None]:
    with mock.patch.multiple(decode, ROWS=rows, GROUP_BYTES=group_bytes, BYTES_MAX=bytes_max):
        yield


short_bytes = st.binary(max_size=20) | st.sampled_from([b"", b"x" * 63, b"y" * 64, b"z" * 9000])
maybe_bytes = st.none() | short_bytes
record_headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3).map(tuple)
timestamps = st.sampled_from([NOW_MS, 0, -1, 1]) | st.integers(-(2**40), 2**42)


@st.composite
def record_set(draw: st.DrawFn) -> tuple[bytes, int]:
    """Whole batches, with gaps as compaction leaves them, and the offset behind the last."""
    fetched, next_offset = b"", draw(st.sampled_from([0, 5, 2**40]))
    for _ in range(draw(st.integers(1, 4))):
        records = []
        next_offset += draw(st.sampled_from([0, 0, 3]))
        for _ in range(draw(st.integers(1, 6))):
            fields = draw(st.tuples(timestamps, maybe_bytes, maybe_bytes, st.just(()) | record_headers))
            records.append(Record(next_offset, *fields))
            next_offset += draw(st.sampled_from([1, 1, 1, 70, 20_000]))
        attributes = draw(st.sampled_from([0, 0, batches.LOG_APPEND_TIME, batches.TRANSACTIONAL, 0x30]))
        fetched += encode_batch(records, codec=draw(st.integers(0, 4)), attributes=attributes)
        next_offset = records[-1].offset + 1
    return fetched, next_offset


@settings(deadline=None, max_examples=200)
@given(st.data(), record_set())
def test_rows_are_those_of_the_plain_decoder(data: st.DataObject, whole: tuple[bytes, int]) -> None:
    fetched, next_offset = whole
    offsets = [record.offset for position, _ in batches.walk(fetched) for record in decode_batch(fetched, position)]
    edges = sorted({max(0, offset + step) for offset in offsets for step in (-1, 0, 1)})
    offset_start = data.draw(st.sampled_from(edges))
    offset_end = data.draw(st.sampled_from([*edges[edges.index(offset_start) :], next_offset + 3, OFFSET_MAX]))
    cut = data.draw(st.integers(0, 60))
    limits = data.draw(
        st.tuples(st.integers(1, 20), st.sampled_from([1, 500, 1 << 20]), st.sampled_from([1, 100, 1 << 20]))
    )
    with small_limits(*limits):
        found, next_found = decoded(
            RowDecoder("orders", 3, arrow_schema(ALL)), fetched + fetched[:cut], offset_start, offset_end
        )
    assert arrow_rows(found) == plain_rows(fetched, offset_start, offset_end)
    assert next_found == min(max(next_offset, offset_start), offset_end)


def renew_crcs(fetched: bytearray) -> None:
    for position, header in list(batches.walk(fetched)):
        crc = crc32c(memoryview(fetched)[position + batches.CRC_START : position + header.size_bytes])
        struct.pack_into(">I", fetched, position + 17, crc)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), record_set())
def test_damage_under_a_valid_crc_is_refused_or_read_as_the_plain_decoder_reads_it(
    data: st.DataObject, whole: tuple[bytes, int]
) -> None:
    fetched = bytearray(whole[0])
    for _ in range(data.draw(st.integers(1, 4))):
        # bytes 0-15 are not under the CRC, and a length there would make another batch of it
        position, header = data.draw(st.sampled_from(list(batches.walk(fetched))))
        place = data.draw(st.integers(batches.CRC_START, header.size_bytes - 1))
        fetched[position + place] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    renew_crcs(fetched)
    assert_as_plain(bytes(fetched))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_random_records_under_a_valid_crc_are_refused_or_read_as_the_plain_decoder_reads_them(
    data: st.DataObject,
) -> None:
    bytes_of_varints = st.lists(st.sampled_from([0, 1, 2, 3, 12, 14, 16, 0x7F, 0x80, 0x81, 0xFE, 0xFF]), max_size=60)
    assert_as_plain(batch_of(bytes(data.draw(bytes_of_varints)), data.draw(st.integers(0, 4))))


def batch_of(records: bytes, count: int, attributes: int = 0) -> bytes:
    """Room for offsets 0 to 4, whatever the records say."""
    fetched = bytearray(encode_batch([Record(i, 0, None, None) for i in range(5)])[: batches.HEADER_BYTES]) + records
    struct.pack_into(">i", fetched, 8, len(fetched) - batches.PREFIX_BYTES)
    struct.pack_into(">h", fetched, 21, attributes)
    struct.pack_into(">i", fetched, 57, count)
    renew_crcs(fetched)
    return bytes(fetched)


GOOD = "0c" + "00 00 02 01 01 00"  # length 6, attributes, timestamp, offset 1, null key, null value, no headers


@pytest.mark.parametrize(
    ("records", "count", "rows"),
    [
        pytest.param(GOOD, 1, 1, id="the smallest record"),
        pytest.param("10 00 00 00 01 01 02 00 01", 1, 1, id="an empty header key and a null value"),
        pytest.param("10 00 00 00 01 01 02 01 01", 1, None, id="a null header key"),
        pytest.param("0c 00 00 00 01 01 01", 1, None, id="minus one headers"),
        pytest.param("0c 00 00 00 01 01 02", 1, None, id="a header that is not there"),
        pytest.param("14 00 00 00 01 01 feffffff0f", 1, None, id="two thousand million headers"),
        pytest.param("0c 00 00 0a 01 01 00", 1, None, id="an offset behind the last"),
        pytest.param("0c 00 00 01 01 01 00", 1, None, id="an offset before the first"),
        pytest.param("0c 00 00 00 03 01 00", 1, None, id="a key of minus two bytes"),
        pytest.param("0c 00 00 00 08 01 00" + GOOD, 2, None, id="a key that reaches into the next record"),
        pytest.param("0e 00 00 00 01 01 00" + GOOD, 2, None, id="a record that reaches into the next"),
        pytest.param("0a 00 00 00 01 01 00", 1, None, id="a record that ends too early"),
        pytest.param("0c 00 00 00 01 01", 1, None, id="a record that is cut off"),
        pytest.param("01", 1, None, id="a record of minus one bytes"),
        pytest.param("", 1, None, id="no record at all"),
        pytest.param(GOOD, 0, None, id="a record that is not counted"),
        pytest.param("1e 00 ffffffffffffffffff01 00 01 01 00", 1, 1, id="a timestamp delta of 64 bits"),
        pytest.param("1e 00 ffffffffffffffffff02 00 01 01 00", 1, None, id="of 65 bits"),
        pytest.param("20 00 8080808080808080808000 00 01 01 00", 1, None, id="of eleven bytes"),
        pytest.param("0e 00 8000 00 01 01 00", 1, 1, id="a varint longer than it need be"),
    ],
)
def test_records_at_the_edge(records: str, count: int, rows: int | None) -> None:
    fetched = batch_of(bytes.fromhex(records), count, batches.LOG_APPEND_TIME)
    assert_as_plain(fetched)
    if rows is None:
        with pytest.raises(InvalidBatch):
            decode_batch(fetched)
    else:
        assert len(decode_batch(fetched)) == rows


def assert_as_plain(fetched: bytes) -> None:
    decoder = RowDecoder("orders", 3, arrow_schema(ALL))
    try:
        for position, _ in batches.walk(fetched):
            batches.check(fetched, position)
        expected = plain_rows(fetched, 0, OFFSET_MAX)
        readable = all(abs(row[5]) <= TIMESTAMP_MS_MAX * 1000 for row in expected)
    except StorageError:
        readable = False
    headers = [header for _, header in batches.walk(fetched)]
    in_order = all(one.next_offset <= other.base_offset for one, other in itertools.pairwise(headers))
    if readable and in_order:
        found, _ = decoded(decoder, fetched, 0, OFFSET_MAX)
        assert arrow_rows(found) == expected
    else:
        with pytest.raises(StorageError, match="topic 'orders', partition 3, batch at offset"):
            decoded(decoder, fetched, 0, OFFSET_MAX)


def one_batch(**changes: int) -> bytearray:
    """Two records at offset 7, then header fields changed, under a valid CRC."""
    batch = encode_batch([Record(7, NOW_MS, b"k", b"v"), Record(8, NOW_MS, None, b"w" * 50)])
    places = {"base_offset": (">q", 0), "length": (">i", 8), "magic": (">b", 16), "attributes": (">h", 21)}
    places |= {"last_offset_delta": (">i", 23), "base_timestamp": (">q", 27), "record_count": (">i", 57)}
    for name, value in changes.items():
        form, place = places[name]
        struct.pack_into(form, batch, place, value)
    with contextlib.suppress(CorruptBatch):
        renew_crcs(batch)
    return batch


def with_broken_crc() -> bytearray:
    batch = one_batch()
    batch[-1] ^= 1
    return batch


@pytest.mark.parametrize(
    ("fetched", "error", "words"),
    [
        pytest.param(with_broken_crc(), CorruptBatch, "CRC-32C is", id="a flipped bit"),
        pytest.param(one_batch(magic=1), UnsupportedBatch, "format v1", id="an old format"),
        pytest.param(one_batch(attributes=7), UnsupportedBatch, "codec 7", id="an unknown codec"),
        pytest.param(one_batch(attributes=codecs.ZSTD), CorruptBatch, "zstd data", id="not what the codec says"),
        pytest.param(one_batch(length=20), CorruptBatch, "says it has 32 bytes", id="a length below the header's"),
        pytest.param(one_batch(record_count=3), InvalidBatch, "3 records", id="more records than offsets"),
        pytest.param(one_batch(record_count=1), InvalidBatch, "bytes stand behind", id="fewer records than bytes"),
        pytest.param(one_batch(last_offset_delta=9, record_count=3), InvalidBatch, "varint", id="more than bytes"),
        pytest.param(one_batch(base_offset=-1), CorruptBatch, "base offset -1", id="a negative offset"),
        pytest.param(one_batch(base_offset=2**63 - 1), CorruptBatch, "cannot be", id="offsets beyond 63 bits"),
        pytest.param(one_batch(base_timestamp=2**60), InvalidBatch, "microseconds", id="beyond microseconds"),
        pytest.param(one_batch() + one_batch(), CorruptBatch, "offset 7 follows one that ends at 9", id="backwards"),
    ],
)
def test_what_is_wrong_is_said_with_topic_partition_and_offset(
    fetched: bytearray, error: type[StorageError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        decoded(RowDecoder("orders", 3, arrow_schema(ALL)), fetched, 0, 100)
    assert str(raised.value).startswith("topic 'orders', partition 3, batch at offset ")


def test_what_decompresses_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = encode_batch([Record(0, 0, None, b"\0" * 100_000)], codec=codecs.LZ4)
    monkeypatch.setattr(codecs.decompress, "__defaults__", (10_000,))
    with pytest.raises(BatchTooLarge, match="partition 3, batch at offset 0"):
        decoded(RowDecoder("orders", 3, arrow_schema(ALL)), fetched, 0, 100)


@pytest.mark.parametrize(
    "damaged",
    [pytest.param(with_broken_crc(), id="crc"), pytest.param(one_batch(magic=0), id="header")],
)
def test_damage_outside_the_window_is_somebody_elses(damaged: bytearray) -> None:
    before = encode_batch([Record(5, NOW_MS, None, b"good")])
    found, next_offset = decoded(RowDecoder("orders", 3, arrow_schema(["value"])), before + damaged, 5, 6)
    assert [batch.to_pydict() for batch in found] == [{"value": [b"good"]}]
    assert next_offset == 6


@pytest.mark.parametrize("fetched", [b"", bytes(60), bytes(one_batch()[:-1]), memoryview(bytearray(one_batch()))[:70]])
def test_without_a_whole_batch_the_same_offset_is_fetched_again(fetched: bytes) -> None:
    assert decoded(RowDecoder("orders", 3, arrow_schema(ALL)), fetched, 7, 100) == ([], 7)


def test_a_batch_that_compaction_left_empty_moves_the_offset_on() -> None:
    empty = one_batch(record_count=0)[: batches.HEADER_BYTES]
    struct.pack_into(">i", empty, 8, batches.HEADER_BYTES - batches.PREFIX_BYTES)
    renew_crcs(empty)
    assert decoded(RowDecoder("orders", 3, arrow_schema(ALL)), empty, 7, 100) == ([], 9)


def test_a_control_batch_gives_no_rows_and_moves_the_offset_on() -> None:
    commit = bytes.fromhex(
        "0000000000000007000000420000000302b40e86630030000000000000018bcfe568000000018bcfe5680000000000000003e8"
        "0005ffffffff000000012000000008000000010c00000000000900"
    )
    assert decoded(RowDecoder("orders", 3, arrow_schema(ALL)), commit, 0, 100) == ([], 8)


def test_a_batch_written_by_kafka_itself_is_read() -> None:
    fetched = bytes.fromhex(
        "00000000000000000000004cffffffff0220409f0d0000000000010000018bcfe568000000018bcfe56805ffffffffffffffff"
        "ffffffffffff000000021c000000046b31047631020268027816000a02010a68656c6c6f00"
    )
    found, next_offset = decoded(RowDecoder("orders", 3, arrow_schema(ALL)), fetched, 0, 100)
    assert next_offset == 2
    assert arrow_rows(found) == [
        (b"k1", b"v1", "orders", 3, 0, NOW_MS * 1000, 0, [{"key": "h", "value": b"x"}]),
        (None, b"hello", "orders", 3, 1, (NOW_MS + 5) * 1000, 0, None),
    ]


@given(st.lists(st.sampled_from(ALL), min_size=1, unique=True))
@settings(deadline=None, max_examples=50)
def test_only_the_columns_asked_for_in_their_order(columns: list[str]) -> None:
    fetched = encode_batch([Record(0, NOW_MS, b"k", b"v", (("h", b"x"),)), Record(1, NOW_MS, None, None)])
    (every,), _ = decoded(RowDecoder("orders", 3, arrow_schema(ALL)), fetched, 0, 2)
    (some,), _ = decoded(RowDecoder("orders", 3, arrow_schema(columns)), fetched, 0, 2)
    assert some.equals(every.select(columns))


def test_arrow_batches_have_about_ten_thousand_rows_and_no_small_rest() -> None:
    fetched, next_offset = b"", 0
    for count in (9_990, 30, 15_000, 31_000):
        fetched += encode_batch([Record(next_offset + row, 0, None, b"") for row in range(count)])
        next_offset += count
    found, _ = decoded(RowDecoder("orders", 3, arrow_schema(["offset"])), fetched, 0, next_offset)
    sizes = [batch.num_rows for batch in found]
    assert sum(sizes) == next_offset
    assert all(5_000 <= size <= 16_000 for size in sizes[1:]), sizes
    assert pa.Table.from_batches(found)["offset"].to_pylist() == list(range(next_offset))


def test_header_keys_that_are_not_utf8_are_repaired() -> None:
    fetched = encode_batch([Record(0, 0, None, b"", (("ab", b"1"), ("c", None)))])
    fetched[fetched.index(b"ab")] = 0xFF
    renew_crcs(fetched)
    (batch,), _ = decoded(RowDecoder("orders", 3, arrow_schema(["headers"])), fetched, 0, 1)
    batch.validate(full=True)
    assert batch["headers"].to_pylist() == [[{"key": "�b", "value": b"1"}, {"key": "c", "value": None}]]


def test_rows_outlive_the_fetch_and_the_next_one() -> None:
    decoder = RowDecoder("orders", 3, arrow_schema(ALL))
    fetched = bytearray(encode_batch([Record(0, NOW_MS, b"k", b"v" * 99)], codec=codecs.LZ4))
    found, _ = decoded(decoder, fetched, 0, 1)
    before = arrow_rows(found)
    fetched[:] = bytes(len(fetched))
    decoded(decoder, encode_batch([Record(1, 0, b"other", b"w" * 99)]), 0, 2)
    assert arrow_rows(found) == before


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        pytest.param(pa.schema([("nonsense", pa.binary())]), "no column 'nonsense'", id="unknown"),
        pytest.param(pa.schema([("value", pa.string())]), "'value' is binary, not string", id="type"),
        pytest.param(pa.schema([("timestamp", pa.timestamp("ms"))]), "timestamp", id="unit"),
        pytest.param(pa.schema([]), "at least one", id="none"),
        pytest.param(pa.schema([("key", pa.binary()), ("key", pa.binary())]), "once each", id="twice"),
    ],
)
def test_a_schema_that_cannot_be_served_is_refused(schema: pa.Schema, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RowDecoder("orders", 3, schema)


def test_the_schema_is_what_spark_expects() -> None:
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    types = pytest.importorskip("pyspark.sql.types")
    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    schema = (
        types.StructType()
        .add("key", types.BinaryType())
        .add("value", types.BinaryType())
        .add("topic", types.StringType())
        .add("partition", types.IntegerType())
        .add("offset", types.LongType())
        .add("timestamp", types.TimestampType())
        .add("timestampType", types.IntegerType())
        .add("headers", types.ArrayType(header))
    )
    assert arrow_schema(ALL).equals(pandas_types.to_arrow_schema(schema, timezone="UTC"), check_metadata=True)


@pytest.mark.parametrize("codec", codecs.CODEC_BY_NAME.values(), ids=codecs.CODEC_BY_NAME)
@pytest.mark.parametrize(
    ("columns", "copied"),
    [
        pytest.param(["value"], 1, id="values only"),
        pytest.param(["key"], 1, id="keys only"),
        pytest.param(["timestamp", "value", "key"], 2, id="some, in another order"),
        pytest.param(["offset", "partition", "timestamp", "timestampType", "topic"], 0, id="no bytes at all"),
        pytest.param(["headers"], 2, id="headers: their keys and values"),
        pytest.param(ALL, 4, id="all"),
    ],
)
def test_only_the_columns_that_are_asked_for_are_copied(
    monkeypatch: pytest.MonkeyPatch, codec: int, columns: list[str], copied: int
) -> None:
    gathered: list[int] = []
    gather = decode._gather

    def counted(arrow_type: pa.DataType, rows: int, *rest: object) -> pa.Array:
        gathered.append(rows)
        return gather(arrow_type, rows, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(decode, "_gather", counted)
    fetched = bytes(
        encode_batch([Record(n, NOW_MS, b"k%d" % n, b"v" * n, (("h", b"x"),)) for n in range(9)], codec=codec)
    )
    (found,), _ = decoded(RowDecoder("orders", 3, arrow_schema(columns)), fetched, 2, 7)
    assert len(gathered) == copied
    (whole,), _ = decoded(RowDecoder("orders", 3, arrow_schema(ALL)), fetched, 2, 7)
    assert found.equals(whole.select(columns))
