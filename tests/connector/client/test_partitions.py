"""Where records go that name no partition, one record at a time; the columns of tables have tests of their own."""

import pytest

from pylog.connector.client.partitions import PartitionChooser
from pylog.storage.kernels.plain import partition_of_key

COUNT = 8
WAYS = [
    pytest.param({"round_robin": True}, b"k", id="round robin"),
    pytest.param({}, None, id="without a key"),
    pytest.param({"ignore_keys": True}, b"k", id="keys ignored"),
]


def chooser(batch_size_bytes: int = 1000, **way: bool) -> PartitionChooser:
    return PartitionChooser(**{"round_robin": False, "ignore_keys": False, **way}, batch_size_bytes=batch_size_bytes)


@pytest.mark.parametrize(("way", "key"), WAYS)
def test_producers_do_not_all_start_at_the_same_partition(way: dict[str, bool], key: bytes | None) -> None:
    starts = {chooser(**way).choose("orders", key, 10, COUNT) for _ in range(400)}
    assert starts == set(range(COUNT)), "one of them is missing by chance once in 10^22 runs"


@pytest.mark.parametrize(("way", "key"), WAYS)
def test_each_topic_of_a_producer_has_a_start_of_its_own(way: dict[str, bool], key: bytes | None) -> None:
    one = chooser(**way)
    assert {one.choose(f"topic-{number}", key, 10, COUNT) for number in range(400)} == set(range(COUNT))


def test_round_robin_takes_the_next_partition_from_there_on_whatever_the_key() -> None:
    one = chooser(round_robin=True)
    rounds = [[one.choose(topic, key, 10, COUNT) for topic in ("orders", "clicks")] for key in [None, b"a"] * COUNT]
    for found in zip(*rounds, strict=True):
        assert list(found) == [(found[0] + number) % COUNT for number in range(2 * COUNT)]


def test_records_without_a_key_stay_for_a_batch_and_then_take_the_next_partition() -> None:
    one = chooser(batch_size_bytes=100)
    found = [one.choose("orders", None, 40, COUNT) for _ in range(6)]
    assert [(partition - found[0]) % COUNT for partition in found] == [0, 0, 1, 1, 2, 2]


def test_a_record_larger_than_a_batch_is_alone_with_its_partition() -> None:
    one = chooser(batch_size_bytes=100)
    found = [one.choose("orders", None, size_bytes, COUNT) for size_bytes in (500, 10, 500)]
    assert [(partition - found[0]) % COUNT for partition in found] == [0, 1, 2]


def test_records_with_a_key_neither_depend_on_the_start_nor_move_it() -> None:
    one = chooser(batch_size_bytes=100)
    before = one.choose("orders", None, 10, COUNT)
    assert {one.choose("orders", b"k", 90, COUNT) for _ in range(5)} == {partition_of_key(b"k", COUNT)}
    assert one.choose("orders", None, 90, COUNT) == before


def test_all_partitions_are_taken_once_there_are_more_of_them() -> None:
    one = chooser(round_robin=True)
    assert {one.choose("orders", None, 10, 2) for _ in range(4)} == {0, 1}
    assert {one.choose("orders", None, 10, 5) for _ in range(5)} == set(range(5))
