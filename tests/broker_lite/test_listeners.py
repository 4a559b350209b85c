"""Each client is told the address of the listener that it came in by; what cannot be is refused in words that help."""

import socket
import struct
from collections.abc import Iterator

import pytest

import pylog
from pylog.broker_lite.config import BrokerConfig, ConfigError
from pylog.broker_lite.config_view import Source
from pylog.broker_lite.listeners import Endpoint, Listener, listeners_of, open_sockets, short_form
from pylog.broker_lite.protocol import describe_cluster, describe_configs, find_coordinator, metadata
from pylog.broker_lite.protocol.find_coordinator import FindCoordinatorRequest
from pylog.broker_lite.protocol.framing import write_request_header
from pylog.broker_lite.protocol.metadata import MetadataRequest
from pylog.broker_lite.protocol.spec import ApiSpec

LOOPBACK = Endpoint("127.0.0.1", 9092)
TWO_NAMES = {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, [Listener("PLAINTEXT", LOOPBACK, LOOPBACK)], id="the default is this host alone"),
        pytest.param(
            {"listeners": "PLAINTEXT://127.0.0.1:9092", "advertised.listeners": "PLAINTEXT://broker.example:19092"},
            [Listener("PLAINTEXT", LOOPBACK, Endpoint("broker.example", 19092))],
            id="advertised elsewhere",
        ),
        pytest.param(
            {"listeners": "plaintext://[::1]:9093"},
            [Listener("PLAINTEXT", Endpoint("::1", 9093), Endpoint("::1", 9093))],
            id="IPv6, and names in any case",
        ),
        pytest.param(
            {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://[2001:db8::7]:9092"},
            [Listener("PLAINTEXT", Endpoint("0.0.0.0", 9092), Endpoint("2001:db8::7", 9092))],
            id="every interface, one address to tell",
        ),
        pytest.param(
            {
                "listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://:9093",
                "advertised.listeners": "OUTSIDE://broker.example:443",
                **TWO_NAMES,
            },
            [
                Listener("INSIDE", LOOPBACK, LOOPBACK),
                Listener("OUTSIDE", Endpoint("", 9093), Endpoint("broker.example", 443)),
            ],
            id="two, of which one is advertised elsewhere",
        ),
        pytest.param(
            {"listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://[::1]:9092", **TWO_NAMES},
            [
                Listener("INSIDE", LOOPBACK, LOOPBACK),
                Listener("OUTSIDE", Endpoint("::1", 9092), Endpoint("::1", 9092)),
            ],
            id="one port for IPv4 and IPv6",
        ),
    ],
)
def test_listeners_and_what_clients_are_told(config: dict[str, str], expected: list[Listener]) -> None:
    assert listeners_of(BrokerConfig.parse(config)) == expected


@pytest.mark.parametrize(
    ("config", "words"),
    [
        pytest.param(
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners=PLAINTEXT://HOST:9092",
            id="all of IPv4",
        ),
        pytest.param({"listeners": "PLAINTEXT://:9092"}, "advertised.listeners=PLAINTEXT://HOST:9092", id="no host"),
        pytest.param({"listeners": "PLAINTEXT://[::]:0"}, "advertised.listeners=PLAINTEXT://HOST:PORT", id="IPv6, all"),
        pytest.param(
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot connect to 0.0.0.0:9092", id="a wildcard told"
        ),
        pytest.param(
            {"advertised.listeners": "OUTSIDE://there:1"},
            "OUTSIDE is not one of the listeners",
            id="no way in",
        ),
        pytest.param(
            {"listeners": "INSIDE://127.0.0.1:1"},
            "listener.security.protocol.map=INSIDE:PLAINTEXT",
            id="a name without a protocol",
        ),
        pytest.param({"listeners": "SSL://127.0.0.1:1"}, "TLS and SASL are not there yet", id="TLS"),
        pytest.param({"listeners": "SASL_PLAINTEXT://127.0.0.1:1"}, "TLS and SASL are not there yet", id="SASL"),
        pytest.param(
            {"listeners": "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.2:1", **TWO_NAMES}, "the same port", id="a port twice"
        ),
        pytest.param(
            {"listeners": "INSIDE://localhost:1,OUTSIDE://[::1]:1", **TWO_NAMES}, "the same port", id="a name has both"
        ),
        pytest.param({"listeners": "PLAINTEXT:127.0.0.1:1"}, "must be NAME://host:port", id="no slashes"),
        pytest.param({"listeners": "PLAINTEXT://h:65536"}, "must be NAME://host:port", id="no port"),
        pytest.param({"listeners": "A://h:1,a://h:2"}, "must have different names", id="one name twice"),
        pytest.param(
            {"listener.security.protocol.map": "OUTSIDE:SSL"},
            "TLS and SASL are not there yet",
            id="TLS, renamed",
        ),
    ],
)
def test_what_cannot_be_is_refused(config: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        listeners_of(BrokerConfig.parse(config))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "long"),
    [
        pytest.param("127.0.0.1:0", "PLAINTEXT://127.0.0.1:0", id="IPv4"),
        pytest.param("[::1]:9092", "PLAINTEXT://[::1]:9092", id="IPv6"),
        pytest.param("::1:9092", "PLAINTEXT://[::1]:9092", id="IPv6 without brackets"),
        pytest.param("*:9092", "PLAINTEXT://:9092", id="a star for every interface"),
        pytest.param("localhost:9092", "PLAINTEXT://localhost:9092", id="a name"),
    ],
)
def test_the_short_way_to_say_it(text: str, long: str) -> None:
    assert short_form(text) == long
    BrokerConfig.parse({"listeners": long})


def test_a_name_with_two_addresses_has_one_port_at_both() -> None:
    sockets, endpoint = open_sockets(Listener("PLAINTEXT", Endpoint("localhost", 0), Endpoint("localhost", 0)))
    try:
        assert {one.getsockname()[1] for one in sockets} == {endpoint.port}
        assert endpoint.host == "localhost"
    finally:
        for one in sockets:
            one.close()


def test_where_one_address_is_taken_none_is_held() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use"):
            open_sockets(Listener("PLAINTEXT", Endpoint("127.0.0.1", port), Endpoint("127.0.0.1", port)))


def test_a_host_that_nobody_knows_is_named() -> None:
    where = Endpoint("no-such-host.invalid", 1)
    with pytest.raises(ConfigError, match=r"cannot listen at no-such-host\.invalid:1"):
        open_sockets(Listener("PLAINTEXT", where, where))


# A broker with three ways in


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Where each of the listeners can be reached, in their order. The third is told as it is bound."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        inside, outside = one.getsockname()[1], two.getsockname()[1]
    config = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside},SIX://[::1]:0",
        "advertised.listeners": "INSIDE://inside.example:1111,OUTSIDE://[2001:db8::1]:2222",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,SIX:PLAINTEXT",
        "offsets.topic.num.partitions": 1,
        "node.id": 3,
        "broker.rack": "north",
    }
    with pylog.Broker(config=config) as broker:
        told = broker.bootstrap_servers.split(",")
        assert told[:2] == ["inside.example:1111", "[2001:db8::1]:2222"]
        yield [f"127.0.0.1:{inside}", f"127.0.0.1:{outside}", told[2]]


def _ask(address: str, spec: ApiSpec, message: object, version: int) -> object:
    frame = bytearray()
    write_request_header(frame, spec.key, version, 1, "test", flexible=spec.is_flexible(version))
    if spec.is_flexible(version):
        frame.append(0)
    frame += spec.encode_request(message, version)
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host.strip("[]"), int(port)), timeout=20) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            body = answers.read(size)[4 + spec.is_flexible(version) :]
    return spec.decode_response(body, version)


@pytest.mark.parametrize("number", range(3), ids=["inside", "outside", "IPv6"])
def test_metadata_and_coordinator_are_at_the_address_of_the_clients_own_listener(
    addresses: list[str], number: int
) -> None:
    six = int(addresses[2].rsplit(":", 1)[1])
    expected = [("inside.example", 1111), ("2001:db8::1", 2222), ("::1", six)][number]
    brokers = _ask(addresses[number], metadata.SPEC, MetadataRequest(topics=[]), 9).brokers
    assert [(one.host, one.port) for one in brokers] == [expected]
    found = _ask(addresses[number], find_coordinator.SPEC, FindCoordinatorRequest(key="g"), 2)
    assert (found.host, found.port) == expected


def test_its_options_say_where_it_listens_what_it_advertises_and_who_it_is(addresses: list[str]) -> None:
    asked = describe_configs.DescribeConfigsResource(4, "3", None)
    request = describe_configs.DescribeConfigsRequest([asked])
    (result,) = _ask(addresses[0], describe_configs.SPEC, request, 1).results
    static = {one.name: one.value for one in result.configs if one.config_source == Source.STATIC and one.read_only}
    bound = f"INSIDE://{addresses[0]},OUTSIDE://{addresses[1]},SIX://{addresses[2]}"
    told = f"INSIDE://inside.example:1111,OUTSIDE://[2001:db8::1]:2222,SIX://{addresses[2]}"
    assert (static["listeners"], static["advertised.listeners"]) == (bound, told)
    assert (static["node.id"], static["broker.id"], static["broker.rack"]) == ("3", "3", "north")


def test_clients_are_told_its_rack(addresses: list[str]) -> None:
    for spec, request, version in (
        (metadata.SPEC, MetadataRequest(topics=[]), 9),
        (describe_cluster.SPEC, describe_cluster.DescribeClusterRequest(), 0),
    ):
        assert [one.rack for one in _ask(addresses[0], spec, request, version).brokers] == ["north"]
