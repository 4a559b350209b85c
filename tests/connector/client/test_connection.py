import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from pylog.broker_lite.protocol import metadata
from pylog.connector.client.config import Address, ClientConfig
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import (
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    NotKafka,
    Retriable,
    UnsupportedVersion,
)
from pylog.connector.client.transport import PlainTransport
from tests.connector.client.fake_kafka import METADATA, VERSIONS, FakeKafka, Fault

REQUEST = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="orders")], False)


@pytest.fixture
def open_connection(kafka: FakeKafka) -> Iterator[Callable[..., Connection]]:
    opened: list[Connection] = []

    def make(**options: str) -> Connection:
        named = {name.replace("_", "."): value for name, value in options.items()}
        config = ClientConfig.parse({"bootstrap.servers": kafka.bootstrap_servers, **named})
        opened.append(Connection(config.bootstrap_servers[0], config))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


Open = Callable[..., Connection]


def test_both_sides_agree_on_the_newest_version_both_speak(kafka: FakeKafka, open_connection: Open) -> None:
    kafka.version_max[METADATA] = 5
    connection = open_connection()
    assert connection.version(metadata.SPEC) == 5
    assert connection.call(metadata.SPEC, REQUEST).topics[0].name == "orders"
    assert kafka.asked(METADATA)[0].version == 5


def test_a_broker_that_knows_only_the_first_version_of_apiversions_is_asked_again(
    kafka: FakeKafka, open_connection: Open
) -> None:
    kafka.api_versions_max = 0
    assert open_connection().call(metadata.SPEC, REQUEST).topics[0].name == "orders"
    assert [request.version for request in kafka.asked(VERSIONS)] == [0]


def test_no_common_version_is_an_error_that_names_both_ranges(kafka: FakeKafka, open_connection: Open) -> None:
    kafka.version_max[METADATA] = -1
    with pytest.raises(UnsupportedVersion, match="of Metadata, this client 0-"):
        open_connection().call(metadata.SPEC, REQUEST)


def test_answers_come_in_the_order_of_the_requests(kafka: FakeKafka, open_connection: Open) -> None:
    kafka.add_topic("second", 1)
    connection = open_connection()
    for topic in ("orders", "second", "orders"):
        connection.send(metadata.SPEC, metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)], False))
    assert connection.in_flight_count == 3
    answers = [connection.decode(metadata.SPEC, connection.receive()) for _ in range(3)]
    assert [answer.topics[0].name for answer in answers] == ["orders", "second", "orders"]


def test_an_answer_in_crumbs_is_put_together(kafka: FakeKafka, open_connection: Open) -> None:
    connection = open_connection()
    kafka.faults[METADATA].append(Fault.CRUMBLE_ANSWER)
    assert connection.call(metadata.SPEC, REQUEST).topics[0].name == "orders"


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        pytest.param(Fault.LOSE_REQUEST, ConnectionLost, "closed it", id="closed before the answer"),
        pytest.param(Fault.CUT_ANSWER, ConnectionLost, "closed it", id="closed within the answer"),
        pytest.param(Fault.SILENCE, ConnectionLost, "no answer to Metadata within request.timeout.ms", id="silence"),
        pytest.param(Fault.WRONG_CORRELATION, NotKafka, "where 1 was asked", id="an answer to another request"),
        pytest.param(Fault.GARBAGE, NotKafka, "does not answer as a Kafka broker", id="garbage"),
        pytest.param(Fault.HUGE, NotKafka, "an answer of 2147483647 bytes", id="a frame of 2 GB"),
        pytest.param(Fault.HTTP, NotKafka, "is security.protocol the one", id="a web server"),
    ],
)
def test_a_broken_connection_raises_what_broke_it_and_is_of_no_more_use(
    kafka: FakeKafka, open_connection: Open, fault: Fault, error: type[ClientError], says: str
) -> None:
    connection = open_connection(request_timeout_ms="500")
    kafka.faults[METADATA].append(fault)
    with pytest.raises(error, match=says) as raised:
        connection.call(metadata.SPEC, REQUEST)
    assert str(connection.address) in str(raised.value)
    assert not connection.is_open
    assert not connection.is_fit()
    with pytest.raises(ConnectionLost, match="is closed"):
        connection.send(metadata.SPEC, REQUEST)


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.GARBAGE, Fault.HTTP, Fault.HUGE, Fault.SILENCE])
def test_what_fails_while_versions_are_negotiated_is_typed_too(
    kafka: FakeKafka, open_connection: Open, fault: Fault
) -> None:
    kafka.faults[VERSIONS].append(fault)
    with pytest.raises((ConnectionLost, NotKafka)):
        open_connection(request_timeout_ms="100")


def test_nobody_listens_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", unused.getsockname()[1])
        config = ClientConfig.parse({"bootstrap.servers": str(address)})
        with pytest.raises(BrokerUnavailable, match=r"Connection refused.*Is a broker running there") as raised:
            Connection(address, config)
    assert isinstance(raised.value, Retriable)


def test_a_name_without_an_address() -> None:
    config = ClientConfig.parse({"bootstrap.servers": "nobody.invalid:1"})
    with pytest.raises(BrokerUnavailable, match="cannot be resolved"):
        Connection(config.bootstrap_servers[0], config)


def test_a_peer_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = ClientConfig.parse(
            {
                "bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}",
                "request.timeout.ms": "100",
                "send.buffer.bytes": "4096",
            }
        )
        monkeypatch.setattr(Connection, "_negotiate", lambda self: None)
        connection = Connection(config.bootstrap_servers[0], config)
        with pytest.raises(ConnectionLost, match="took nothing more"):
            connection.send_encoded(metadata.SPEC, 12, [bytes(1 << 24)])


def test_many_small_buffers_and_a_large_one_arrive_as_one_frame_whole() -> None:
    body = [bytes([n % 251]) * (n % 7) for n in range(3000)] + [b"x" * (3 << 20)]
    received = bytearray()

    def read(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big")
            while len(received) < size:
                received.extend(peer.recv(100_000))

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
        reader = threading.Thread(target=read, args=(listener,))
        reader.start()
        sock.connect(listener.getsockname())
        size = sum(map(len, body)).to_bytes(4, "big")
        PlainTransport(sock).send([size, *body], 30_000)
        reader.join()
    assert bytes(received) == b"".join(body)


def test_an_idle_connection_is_fit_until_the_broker_closes_it(kafka: FakeKafka, open_connection: Open) -> None:
    connection = open_connection()
    assert connection.is_fit()
    kafka.stop(0)
    assert not connection.is_fit()


def test_a_connection_that_was_idle_for_too_long_is_not_fit(kafka: FakeKafka, open_connection: Open) -> None:
    connection = open_connection(connections_max_idle_ms="1000")
    connection.idle_since -= 2
    assert not connection.is_fit()
