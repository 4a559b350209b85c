"""Clients of every make come in by any listener, stay with it, and see the same topics."""

from collections.abc import Iterator

import pytest

import pylog
from tests.support.foreign_clients import CLIENTS, ForeignRecord

RECORDS = [ForeignRecord(b"k", f"{number}".encode(), (), 1_700_000_000_000 + number) for number in range(20)]


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """An IPv4 address, an IPv6 one, and a name."""
    config = {
        "listeners": "FOUR://127.0.0.1:0,SIX://[::1]:0,NAMED://localhost:0",
        "listener.security.protocol.map": "FOUR:PLAINTEXT,SIX:PLAINTEXT,NAMED:PLAINTEXT",
        "group.initial.rebalance.delay.ms": 0,
        "log.retention.ms": -1,
    }
    with pylog.Broker(config=config) as broker:
        yield broker.bootstrap_servers.split(",")


@pytest.mark.parametrize("number", range(3), ids=["IPv4", "IPv6", "by name"])
@pytest.mark.parametrize("client", CLIENTS)
def test_what_comes_in_by_one_listener_goes_out_by_another(addresses: list[str], client: str, number: int) -> None:
    topic = f"{client}-{number}"
    CLIENTS[client].produce(addresses[number], topic, RECORDS)
    assert CLIENTS[client].consume(addresses[(number + 1) % 3], topic, len(RECORDS)) == RECORDS
