"""A table is encoded in parts whose bytes are bounded, whatever its rows are like."""

import pyarrow as pa
import pytest

from pylog.connector.producer import _slices, _written

EVEN = [b"x" * 100] * 1000
FEW_LARGE = [b"x"] * 990 + [b"x" * 10_000] * 10
HEADERS = pa.array([[{"key": "k", "value": b"x" * size}] for size in (10, 5_000, 20, 30, 4_000)])


@pytest.mark.parametrize(
    ("table", "bytes_max", "parts"),
    [
        pytest.param(pa.table({"value": EVEN}), 1 << 20, 1, id="all of it fits"),
        pytest.param(pa.table({"value": EVEN}), 30_000, 4, id="rows alike"),
        pytest.param(pa.record_batch({"value": EVEN[:500]}), 30_000, 2, id="a record batch"),
        pytest.param(pa.table({"value": EVEN})[250:750], 30_000, 2, id="a slice"),
        pytest.param(pa.table({"value": FEW_LARGE}), 30_000, 16, id="a few rows with most of the bytes"),
        pytest.param(pa.table({"value": FEW_LARGE}), 1, 1000, id="a row each"),
        pytest.param(pa.table({"value": ["v"] * 5, "headers": HEADERS}), 4_500, 4, id="headers count, too"),
        pytest.param(pa.table({"value": pa.array([], pa.binary())}), 1, 0, id="no row"),
    ],
)
def test_no_part_is_larger_unless_it_is_a_row(table: pa.Table | pa.RecordBatch, bytes_max: int, parts: int) -> None:
    found = list(_slices(table, bytes_max))
    assert all(part.nbytes <= bytes_max or part.num_rows == 1 for part in found if table.num_rows)
    assert [row for part in found for row in part.to_pylist()] == table.to_pylist()
    assert len(found) <= parts, "and it is not cut to pieces"


def test_columns_that_are_left_alone_do_not_count() -> None:
    """Every slice of a dictionary column counts all of its dictionary."""
    cities = pa.array(["a city of many letters" * 100] * 1000).dictionary_encode()
    table = pa.table({"value": EVEN, "city": cities, "key": EVEN})
    assert _written(table).column_names == ["value", "key"]
    assert len(list(_slices(_written(table), 110_000))) == 2
    plain = table.select(["key", "value"])
    assert _written(plain) is plain
