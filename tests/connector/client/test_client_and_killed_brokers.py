"""A broker dies by kill -9 while the client writes or reads, and comes back: nothing acknowledged is missing."""

from collections.abc import Callable

import pytest

import pylog
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.fetcher import fetch_range
from pylog.connector.client.producer import RecordProducer
from pylog.storage.batch import walk
from pylog.storage.records import Record, decode_batch, encode_batch

pytestmark = pytest.mark.faults
Connect = Callable[..., Cluster]
BATCHES = 200


def batch_of(label: int) -> bytearray:
    return encode_batch([Record(n, 0, None, b"%d " % label + b"x" * 400) for n in range(5)])


def labels(cluster: Cluster, partition: int) -> list[int]:
    """The label of every batch in the log, in order; every batch must hold its five records."""
    end = cluster.latest([("orders", partition)])["orders", partition]
    found = []
    for fetched in fetch_range(cluster, "orders", partition, 0, end):
        for position, header in walk(fetched.records):
            records = decode_batch(fetched.records[position : position + header.size_bytes])
            (label,) = {int((record.value or b"").split()[0]) for record in records}
            assert len(records) == 5
            found.append(label)
    return found


@pytest.mark.parametrize("kills", [[0], [30, 110], [50, 51, 199]], ids=str)
def test_writing_goes_on(connect: Connect, kills: list[int]) -> None:
    with pylog.Broker() as broker:
        cluster = connect(broker.bootstrap_servers, max_request_size="20000")
        cluster.create_topic("orders", 2)
        with RecordProducer(cluster.config) as producer:
            for label in range(BATCHES):
                for partition in (0, 1):
                    producer.send_batch("orders", partition, batch_of(label), 5)
                if label in kills:
                    broker.kill()
                    broker.start()
        for partition in (0, 1):
            assert labels(cluster, partition) == list(range(BATCHES)), "each once, and in order"


def test_reading_goes_on(connect: Connect) -> None:
    with pylog.Broker() as broker:
        cluster = connect(broker.bootstrap_servers, max_partition_fetch_bytes="10000")
        cluster.create_topic("orders", 1)
        with RecordProducer(cluster.config) as producer:
            for label in range(BATCHES):
                producer.send_batch("orders", 0, batch_of(label), 5)
        found = []
        for turn, fetched in enumerate(fetch_range(cluster, "orders", 0, 0, BATCHES * 5)):
            found += [header.base_offset for _, header in walk(fetched.records)]
            if turn in (0, 5, 6):
                broker.kill()
                broker.start()
        assert found == list(range(0, BATCHES * 5, 5))
