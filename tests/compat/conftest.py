from collections.abc import Iterator

import pytest

import pylog


@pytest.fixture(scope="module")
def own_broker() -> Iterator[pylog.Broker]:
    """A pylog broker for this module alone, on a directory that the tests may look into."""
    config = {"num.partitions": 2, "log.retention.ms": -1, "group.initial.rebalance.delay.ms": 0}  # records are old
    with pylog.Broker(config=config) as broker:
        yield broker


@pytest.fixture(scope="module")
def servers(own_broker: pylog.Broker) -> str:
    return own_broker.bootstrap_servers
