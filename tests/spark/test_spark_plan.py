"""Offsets and ranges, without a Spark and without a broker."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.connector.spark.offsets import from_json, to_json
from pylog.connector.spark.plan import OffsetRange, limited, ranges, split

A, B, C = ("t", 0), ("t", 1), ("u", 0)

places = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 12))
backlogs = st.dictionaries(places, st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)))


def test_a_limit_is_shared_by_what_waits() -> None:
    begin, end = {A: 0, B: 100, C: 5}, {A: 300, B: 200, C: 5}
    assert limited(begin, end, 40) == {A: 30, B: 110, C: 5}


def test_shares_are_rounded_down_but_a_partition_with_little_is_not_starved() -> None:
    assert limited({A: 0, B: 0}, {A: 999, B: 1}, 10) == {A: 9, B: 1}


def test_a_limit_above_what_waits_is_no_limit() -> None:
    assert limited({A: 0, B: 0}, {A: 3, B: 4}, 7) == {A: 3, B: 4}


@given(backlogs, st.integers(1, 1 << 62))
def test_a_limited_batch_stays_within_what_is_there_and_always_gets_on(
    waiting: dict[tuple[str, int], tuple[int, int]], rows_max: int
) -> None:
    begin = {place: start for place, (start, _) in waiting.items()}
    end = {place: start + count for place, (start, count) in waiting.items()}
    found = limited(begin, end, rows_max)
    assert found.keys() == end.keys()
    assert all(begin[place] <= found[place] <= end[place] for place in end)
    assert all(found[place] > begin[place] for place in end if end[place] > begin[place])
    # One offset each against starving is the only reason to pass the limit.
    assert sum(found[place] - begin[place] for place in end) <= rows_max + len(end)


def test_ranges_leave_out_what_is_empty_and_come_in_order() -> None:
    found = ranges({C: 1, A: 5, B: 7}, {C: 3, A: 5, B: 8})
    assert found == [OffsetRange("t", 1, 7, 8), OffsetRange("u", 0, 1, 3)]


def sizes(parts: list[OffsetRange]) -> list[int]:
    return [part.size for part in parts]


@pytest.mark.parametrize(
    ("whole", "partitions_min", "records_max", "wanted"),
    [
        pytest.param([10, 5], None, None, [10, 5], id="not asked for"),
        pytest.param([10, 5], 2, None, [10, 5], id="enough already"),
        pytest.param([10, 5], 3, None, [5, 5, 5], id="the larger one is split"),
        pytest.param([1000, 1], 4, None, [333, 333, 334, 1], id="a small one is left alone, the others share the rest"),
        pytest.param([3, 2], 100, None, [1] * 5, id="never an empty one"),
        pytest.param([10, 5, 4], None, 4, [3, 3, 4, 2, 3, 4], id="by records, evenly"),
        pytest.param([10], None, 10, [10], id="exactly as many as allowed"),
        pytest.param([11], None, 10, [5, 6], id="one more than allowed"),
        pytest.param([12, 2], 6, 6, [2] * 7, id="by records first, then by number, as rounding has it"),
        pytest.param([], 5, 5, [], id="nothing to split"),
    ],
)
def test_ranges_are_split(
    whole: list[int], partitions_min: int | None, records_max: int | None, wanted: list[int]
) -> None:
    given_ranges = [OffsetRange("t", number, 100, 100 + size) for number, size in enumerate(whole)]
    assert sizes(split(given_ranges, partitions_min, records_max)) == wanted


@given(
    st.lists(st.integers(1, 1 << 40), max_size=8),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1 << 33, 1 << 62),
)
def test_split_ranges_are_the_same_offsets_in_order(
    counts: list[int], partitions_min: int | None, records_max: int | None
) -> None:
    whole = [OffsetRange("t", number, 7, 7 + count) for number, count in enumerate(counts)]
    parts = split(whole, partitions_min, records_max)
    assert all(part.size > 0 for part in parts)
    assert records_max is None or all(part.size <= records_max for part in parts)
    joined: dict[int, tuple[int, int]] = {}
    for _, partition, start, end in parts:
        first, last = joined.get(partition, (start, start))
        assert last == start
        joined[partition] = first, end
    assert joined == {one.partition: (one.start, one.end) for one in whole}


def test_offsets_in_a_checkpoint_look_as_sparks_kafka_connector_writes_them_and_are_sorted_by_number() -> None:
    offsets = {("b", 0): 1, ("a", 10): 2, ("a", 9): 3}
    assert json.dumps(to_json(offsets)) == '{"a": {"9": 3, "10": 2}, "b": {"0": 1}}'
    assert from_json(to_json(offsets)) == offsets
