"""What Kafka does to connections that are too many, too large or no Kafka clients at all, pylog does."""

import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import pylog
from tests.conftest import RunningBroker
from tests.support.apache_kafka import ApacheKafka
from tests.support.wire_clients import API_VERSIONS, WireClient, frame

OF_ADDRESS_MAX = 12
CONFIG = {"max.connections.per.ip": str(OF_ADDRESS_MAX), "socket.request.max.bytes": "100000"}


@pytest.fixture(scope="module", params=["pylog", "Apache Kafka"])
def limited(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    with pylog.Broker(config=CONFIG) if request.param == "pylog" else ApacheKafka(CONFIG) as running:
        yield running


def test_one_too_many_of_an_address_is_closed_and_the_others_stay(limited: RunningBroker) -> None:
    with ExitStack() as stack:
        answered = 0
        for _ in range(OF_ADDRESS_MAX + 1):
            client = stack.enter_context(WireClient(limited.bootstrap_servers))
            try:
                client.ask(API_VERSIONS)
                answered += 1
            except (struct.error, ConnectionError):
                break
        else:
            pytest.fail(f"{answered} connections were accepted")
        # Kafka's own connections to itself count too.
        assert OF_ADDRESS_MAX - 6 <= answered <= OF_ADDRESS_MAX


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 100_001), id="one byte more than allowed is announced"),
        pytest.param(struct.pack(">i", -1), id="a negative size"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(frame(9999, 0), id="an API that nobody knows"),
        pytest.param(frame(3, 99), id="a version that nobody knows"),
        pytest.param(frame(3, 1, b"\x7f\xff\xff\xff"), id="a lying count"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="a frame that is too short for its header"),
    ],
)
def test_nonsense_closes_its_connection(limited: RunningBroker, data: bytes) -> None:
    with WireClient(limited.bootstrap_servers) as bad, WireClient(limited.bootstrap_servers) as good:
        bad.send(data)
        assert bad.is_closed_by_peer()
        assert len(good.ask(API_VERSIONS)) > 10


def test_requests_that_come_together_are_answered_in_their_order(limited: RunningBroker) -> None:
    with WireClient(limited.bootstrap_servers) as client:
        client.send(b"".join(frame(18, 0, number=number) for number in range(20)))
        assert [struct.unpack(">i", client.answer()[:4])[0] for _ in range(20)] == list(range(20))
