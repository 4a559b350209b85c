"""The encoder against its twin: what it writes is what `storage.records` writes, and reads back as the rows given."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.connector.columnar.encode import EncodedBatch, RowEncoder
from pylog.storage import batch as batches
from pylog.storage import codecs
from pylog.storage.records import Record, decode_batch, encode_batch

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE_HEADERS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))

maybe_bytes = st.none() | st.binary(max_size=20) | st.sampled_from([b"", b"x" * 63, b"y" * 64, b"z" * 9000])
header = st.fixed_dictionaries({"key": st.text(max_size=5), "value": maybe_bytes})
row = st.fixed_dictionaries(
    {
        "key": maybe_bytes,
        "value": maybe_bytes,
        "headers": st.none() | st.lists(header, max_size=3),
        "timestamp": st.none() | st.sampled_from([NOW_MS, 0]) | st.integers(0, 2**45),
        "partition": st.integers(0, 3),
    }
)


def columns_of(rows: list[dict[str, Any]], large: bool) -> pa.Table:
    binary, headers = (pa.large_binary(), LARGE_HEADERS) if large else (pa.binary(), HEADERS)
    types = {"key": binary, "value": binary, "headers": headers, "timestamp": pa.int64()}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()})


def ids_of(rows: list[dict[str, Any]]) -> np.ndarray:
    return np.array([row["partition"] for row in rows], np.int32)


def records_of(rows: list[dict[str, Any]]) -> list[Record]:
    """As one batch of its own would hold them."""
    return [
        Record(
            offset,
            NOW_MS if row["timestamp"] is None else row["timestamp"],
            row["key"],
            row["value"],
            tuple((one["key"], one["value"]) for one in row["headers"] or ()),
        )
        for offset, row in enumerate(rows)
    ]


def without_offset(record: Record) -> Record:
    return record._replace(offset=0)


@settings(deadline=None, max_examples=200)
@given(
    rows=st.lists(row, min_size=1, max_size=12),
    codec=st.integers(0, 4),
    batch_size_bytes=st.sampled_from([62, 100, 250, 10_000]),
    large=st.booleans(),
    cut=st.integers(0, 12),
)
def test_each_partition_reads_back_as_its_rows_in_order(
    rows: list[dict[str, Any]], codec: int, batch_size_bytes: int, large: bool, cut: int
) -> None:
    whole = columns_of(rows, large)
    # the same rows in two chunks, each a slice of something longer
    table = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)]) if cut else whole
    encoder = RowEncoder(codec, None, batch_size_bytes)
    encoded = encoder.encode(table, ids_of(rows), NOW_MS)
    assert [batch.partition for batch in encoded] == sorted(batch.partition for batch in encoded)
    for partition in range(4):
        expected = records_of([row for row in rows if row["partition"] == partition])
        mine = [batch for batch in encoded if batch.partition == partition]
        found = [record for batch in mine for record in decode_batch(batch.records)]
        assert list(map(without_offset, found)) == list(map(without_offset, expected))
        assert [batch.record_count for batch in mine] == [len(decode_batch(batch.records)) for batch in mine]
        for batch in mine:
            plain_bytes = len(encode_batch(decode_batch(batch.records)))
            assert plain_bytes <= batch_size_bytes or batch.record_count == 1


@settings(deadline=None, max_examples=100)
@given(rows=st.lists(row, min_size=1, max_size=12), codec=st.integers(0, 4))
def test_one_partition_in_one_batch_is_byte_for_byte_what_the_plain_encoder_writes(
    rows: list[dict[str, Any]], codec: int
) -> None:
    table = columns_of(rows, large=False)
    (batch,) = RowEncoder(codec).encode(table, np.full(len(rows), 2, np.int32), NOW_MS)
    assert batch == EncodedBatch(2, memoryview(encode_batch(records_of(rows), codec=codec)), len(rows))


def encode_values(values: pa.Array | pa.ChunkedArray, **columns: Any) -> list[Record]:
    table = pa.table({"value": values, **columns})
    encoded = RowEncoder().encode(table, np.zeros(len(table), np.int32), NOW_MS)
    return [record for batch in encoded for record in decode_batch(batch.records)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(pa.array(["a", None, "é"]), [b"a", None, "é".encode()], id="strings"),
        pytest.param(pa.array(["a", None], pa.large_string()), [b"a", None], id="large strings"),
        pytest.param(pa.nulls(2), [None, None], id="the null type"),
        pytest.param(pa.array([b"no", None, b"yes", b"too", b"no"])[1:4], [None, b"yes", b"too"], id="a slice"),
        pytest.param(pa.array([b"a"] * 9 + [None, b"b", None] + [b"a"] * 9)[9:12], [None, b"b", None], id="far bits"),
        pytest.param(pa.array([None, None], pa.binary()), [None, None], id="all null"),
        pytest.param(pa.chunked_array([[b"a"], [], [None], [b"b"]]), [b"a", None, b"b"], id="chunks, one empty"),
    ],
)
def test_a_column_in_any_of_arrows_shapes(values: pa.Array, expected: list[bytes | None]) -> None:
    assert [record.value for record in encode_values(values)] == expected


def test_headers_in_slices_of_slices() -> None:
    structs = pa.array([{"key": f"k{i}", "value": None if i == 3 else b"v%d" % i} for i in range(8)])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3, 5], pa.int32()), structs.slice(1))
    found = encode_values(pa.array([b"", b"", b""]), headers=lists.slice(1))
    assert [record.headers for record in found] == [(("k2", b"v2"), ("k3", None)), (), (("k4", b"v4"), ("k5", b"v5"))]


def test_the_elements_of_a_null_list_do_not_count() -> None:
    structs = pa.array([{"key": "k", "value": b"v"}, None])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), structs, mask=pa.array([False, True]))
    assert [record.headers for record in encode_values(pa.array([b"", b""]), headers=lists)] == [(("k", b"v"),), ()]


@pytest.mark.parametrize(
    ("kind", "numbers", "expected"),
    [
        pytest.param(pa.timestamp("us", tz="Europe/Paris"), [NOW_MS * 1000 + 999], [NOW_MS], id="Spark's own"),
        pytest.param(pa.timestamp("s"), [1_700_000_000], [NOW_MS], id="seconds"),
        pytest.param(pa.timestamp("ns"), [NOW_MS * 1_000_000, None], [NOW_MS, 77], id="nanoseconds, and now"),
        pytest.param(pa.int64(), [5, None, 3], [5, 77, 3], id="milliseconds, going back"),
        pytest.param(pa.null(), [None, None], [77, 77], id="no type"),
    ],
)
def test_timestamps_in_any_unit(kind: pa.DataType, numbers: list[int | None], expected: list[int]) -> None:
    rows = pa.table({"value": pa.nulls(len(numbers)), "timestamp": pa.array(numbers, kind)})
    (batch,) = RowEncoder().encode(rows, np.zeros(len(numbers), np.int32), 77)
    assert [record.timestamp_ms for record in decode_batch(batch.records)] == expected
    assert batches.read_header(batch.records).max_timestamp == max(expected)


def test_a_record_over_the_limit_gets_a_batch_of_its_own() -> None:
    rows = pa.table({"value": [b"a", b"b", b"c" * 1_000_000, b"d"]})
    encoded = RowEncoder(batch_size_bytes=1000).encode(rows, np.zeros(4, np.int32), NOW_MS)
    assert [batch.record_count for batch in encoded] == [2, 1, 1]


def test_an_exactly_full_batch_is_not_cut() -> None:
    rows = pa.table({"value": [b"a" * 20, b"b" * 20]})
    (batch,) = RowEncoder().encode(rows, np.zeros(2, np.int32), NOW_MS)
    assert len(RowEncoder(batch_size_bytes=len(batch.records)).encode(rows, np.zeros(2, np.int32), NOW_MS)) == 1
    assert len(RowEncoder(batch_size_bytes=len(batch.records) - 1).encode(rows, np.zeros(2, np.int32), NOW_MS)) == 2


def test_producer_fields_can_be_set_later() -> None:
    (batch,) = RowEncoder().encode(pa.table({"value": [b"a"]}), np.zeros(1, np.int32), NOW_MS)
    header = batches.check(batch.records)
    assert header[9:12] == (-1, -1, -1)
    batches.pack_header(batch.records, 0, header._replace(producer_id=4, producer_epoch=5, base_sequence=6))
    assert batches.check(batch.records)[9:12] == (4, 5, 6)


def test_no_rows_give_no_batches() -> None:
    assert RowEncoder().encode(pa.table({"value": pa.array([], pa.binary())}), np.zeros(0, np.int32)) == []


ONE = np.zeros(1, np.int32)
NO_KEY = pa.array([[{"key": None, "value": b""}]], HEADERS)


@pytest.mark.parametrize(
    ("columns", "ids", "error", "words"),
    [
        pytest.param({"key": [b""]}, ONE, ValueError, "no column 'value'", id="no value"),
        pytest.param({"value": [1]}, ONE, TypeError, "'value' must be binary or string, not int64", id="a number"),
        pytest.param({"value": [b""], "headers": [[b"x"]]}, ONE, TypeError, "array of structs", id="other headers"),
        pytest.param({"value": [b""], "headers": NO_KEY}, ONE, ValueError, "row 0: a header must", id="null key"),
        pytest.param(
            {"value": [b""], "headers": pa.array([[None]], HEADERS)}, ONE, ValueError, "key", id="null header"
        ),
        pytest.param({"value": [b""], "timestamp": [-1]}, ONE, ValueError, "before 1970", id="before 1970"),
        pytest.param({"value": [b""], "timestamp": ["x"]}, ONE, TypeError, "'timestamp' must be", id="a string"),
        pytest.param({"value": [b""]}, np.zeros(2, np.int32), ValueError, "for 1 rows", id="other length"),
        pytest.param({"value": [b""]}, ONE - 1, ValueError, "partition -1", id="a negative partition"),
        pytest.param({"value": [b""]}, ONE + 2**30, ValueError, "partition 1073741824", id="a huge partition"),
    ],
)
def test_what_cannot_be_written_is_refused(
    columns: dict[str, Any], ids: np.ndarray, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        RowEncoder().encode(pa.table(columns), ids, NOW_MS)


@pytest.mark.parametrize("arguments", [{"codec": 7}, {"batch_size_bytes": 61}, {"batch_size_bytes": 2**31}])
def test_an_encoder_that_cannot_be_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"unknown compression codec 7|a batch takes"):
        RowEncoder(**arguments)


def test_offsets_that_point_outside_their_data_are_refused() -> None:
    offsets, data = pa.py_buffer(np.array([0, 1 << 30, 8], np.int32)), pa.py_buffer(b"12345678")
    damaged = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, data])
    with pytest.raises(ValueError, match="'value', row 0"):
        RowEncoder().encode(pa.record_batch({"value": damaged}), np.zeros(2, np.int32), NOW_MS)


def test_every_codec_compresses() -> None:
    rows = pa.table({"value": [b"abc" * 1000] * 10})
    for codec in (codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD):
        (batch,) = RowEncoder(codec).encode(rows, np.zeros(10, np.int32), NOW_MS)
        assert batches.check(batch.records).codec == codec
        assert len(batch.records) < 6000
