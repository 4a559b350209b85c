import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.connector.columnar.encode import RowEncoder
from pylog.connector.columnar.partitioner import RowPartitioner, Sticky, partition_ids
from pylog.storage.kernels.plain import partition_of_key


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(1, 1000))
def test_equal_keys_go_where_every_other_client_puts_them(keys: list[bytes], partition_count: int) -> None:
    kafka = pytest.importorskip("kafka.partitioner.default")  # another client's own hash
    ids = partition_ids(pa.array(keys), None, partition_count, Sticky(1000))
    assert ids.tolist() == [(kafka.murmur2(key) & 0x7FFFFFFF) % partition_count for key in keys]
    assert ids.tolist() == [partition_of_key(key, partition_count) for key in keys]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_a_key_is_its_bytes_whatever_its_type(kind: pa.DataType) -> None:
    keys = pa.array(["kafka", "foobar", ""], kind)
    assert partition_ids(keys, None, 50, Sticky(1000)).tolist() == [
        partition_of_key(key, 50) for key in (b"kafka", b"foobar", b"")
    ]


def test_a_named_partition_wins_over_the_key() -> None:
    keys = pa.chunked_array([[b"a", b"a"], [None, None]])
    ids = partition_ids(keys, pa.array([7, None, 6, None]), 10, Sticky(1000, start=3))
    assert ids.tolist() == [7, partition_of_key(b"a", 10), 6, 3]
    assert ids.dtype == np.int32


@pytest.mark.parametrize("named", [-1, 4, 2**40])
def test_a_partition_that_is_not_there_is_refused(named: int) -> None:
    with pytest.raises(ValueError, match=f"row 1: there is no partition {named}; the topic has 4"):
        partition_ids(None, pa.array([None, named], pa.int64()), 4, Sticky(1000))


@pytest.mark.parametrize(
    ("key", "explicit", "count", "error", "words"),
    [
        pytest.param(None, pa.array(["1"]), 3, TypeError, "'partition' must be an integer", id="a string partition"),
        pytest.param(pa.array([1]), None, 3, TypeError, "'key' must be binary", id="a number as key"),
        pytest.param(None, None, 3, ValueError, "cannot be given", id="no columns"),
        pytest.param(pa.array([b""]), pa.array([1, 2]), 3, ValueError, "cannot be given", id="other lengths"),
        pytest.param(pa.array([b""]), None, 0, ValueError, "at least one", id="no partitions"),
    ],
)
def test_what_cannot_be_partitioned_is_refused(
    key: pa.Array, explicit: pa.Array, count: int, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        partition_ids(key, explicit, count, Sticky(1000))


def test_rows_without_a_key_stay_for_a_batch_and_then_take_the_next_partition() -> None:
    sticky = Sticky(300, start=2)
    value = pa.array([b"x" * 90] * 5)
    # 100 bytes a row with what a record adds; the state lives on from one Arrow batch to the next
    assert partition_ids(None, None, 3, sticky, value).tolist() == [2, 2, 2, 0, 0]
    assert partition_ids(None, None, 3, sticky, value).tolist() == [0, 1, 1, 1, 2]


def test_rows_without_a_key_spread_evenly_over_time() -> None:
    sticky = Sticky(10_000)
    rng = np.random.default_rng(5)
    given_bytes = np.zeros(7)
    for _ in range(100):
        lengths = rng.integers(0, 500, 1000)
        value = pa.array([b"x" * length for length in lengths])
        np.add.at(given_bytes, partition_ids(pa.nulls(1000, pa.binary()), None, 7, sticky, value), lengths)
    assert given_bytes.max() / given_bytes.min() < 1.02


def test_tasks_do_not_all_start_at_the_same_partition() -> None:
    value = pa.array([b"x"])
    assert len({partition_ids(None, None, 16, Sticky(1000), value)[0] for _ in range(200)}) > 8


def test_rows_with_keys_do_not_use_up_the_sticky_partition() -> None:
    keys = pa.array([b"k", None] * 10)
    value = pa.array([b"x" * 90] * 20)
    ids = partition_ids(keys, None, 100, Sticky(1000, start=50), value)
    assert ids[1::2].tolist() == [50] * 10
    assert set(ids[0::2].tolist()) == {partition_of_key(b"k", 100)}


def test_a_topic_with_fewer_partitions_than_the_last_still_fits() -> None:
    sticky = Sticky(1, start=9)
    assert partition_ids(None, None, 10, sticky, pa.array([b"x"])).tolist() == [9]
    assert partition_ids(None, None, 2, sticky, pa.array([b"x", b"y"])).tolist() == [0, 1]


def test_no_rows_give_no_partitions() -> None:
    assert partition_ids(pa.array([], pa.binary()), None, 3, Sticky(1000)).tolist() == []


@pytest.mark.parametrize("value_bytes", [20, 100, 1000, 6000])
def test_a_run_of_rows_without_a_key_fits_into_one_batch(value_bytes: int) -> None:
    """Else every run would leave a batch of a row or two behind it."""
    batch_bytes = 64 << 10
    rows = pa.record_batch({"value": pa.array([b"x" * value_bytes] * (40 * batch_bytes // value_bytes))})
    ids = RowPartitioner(batch_bytes).partition_ids(rows, 1 << 16)  # so many that no partition comes round again
    made = RowEncoder(batch_size_bytes=batch_bytes).encode(rows, ids)
    assert len({batch.partition for batch in made}) == len(made)
    assert sum(len(batch.records) < 0.8 * batch_bytes for batch in made) <= 1, "only the last is not full"
