"""A forked child opens connections of its own, and its parent's live on."""

import os
from collections.abc import Callable

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.errors import ConnectionLost
from pylog.connector.client.fetcher import fetch_range
from pylog.storage.records import Record, encode_batch
from tests.connector.client.fake_kafka import FakeKafka

Connect = Callable[..., Cluster]


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work`, run in a forked child, returned true."""
    child = os.fork()
    if child == 0:
        passed = False
        try:
            passed = work()
        finally:
            os._exit(0 if passed else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_idle_connection_stays_the_parents(kafka: FakeKafka, connect: Connect) -> None:
    cluster = connect(kafka)
    cluster.latest([("orders", 0)])
    assert in_child(lambda: cluster.latest([("orders", 0)]) == {("orders", 0): 0})
    assert kafka.connections_opened == 2
    cluster.latest([("orders", 0)])
    assert kafka.connections_opened == 2, "the parent's connection outlived the child"


def test_a_range_that_is_being_read_is_read_on_by_both(kafka: FakeKafka, connect: Connect) -> None:
    for _ in range(10):
        kafka.logs["orders", 0].append(bytes(encode_batch([Record(0, 0, None, b"x")])))
    fetched = fetch_range(connect(kafka, max_partition_fetch_bytes="1"), "orders", 0, 0, 10)
    first = next(fetched).next_offset
    assert in_child(lambda: [part.fetch_offset for part in fetched] == list(range(first, 10)))
    assert [part.fetch_offset for part in fetched] == list(range(first, 10))


def test_a_connection_in_use_is_closed_to_the_child_only(kafka: FakeKafka, connect: Connect) -> None:
    cluster = connect(kafka)
    cluster.partitions("orders")
    with cluster.broker(0) as connection:

        def use() -> bool:
            try:
                connection.receive()
            except ConnectionLost:
                return True
            return False

        assert in_child(use)
        assert connection.is_fit()
