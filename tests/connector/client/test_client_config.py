import pickle

import pytest

from pylog.connector.client.config import OPTIONS, Address, ClientConfig, Role, names_of
from pylog.connector.client.config_types import Option
from pylog.connector.client.errors import ConfigError

SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        pytest.param("a:1", [Address("a", 1)], id="one"),
        pytest.param(" a:1 , b.c:65535,", [Address("a", 1), Address("b.c", 65535)], id="spaces and a trailing comma"),
        pytest.param("[::1]:9092", [Address("::1", 9092)], id="IPv6 in brackets"),
        pytest.param("a:1,a:1", [Address("a", 1)], id="a name that stands twice"),
    ],
)
def test_bootstrap_servers_are_a_list_of_addresses(text: str, addresses: list[Address]) -> None:
    assert list(ClientConfig.parse({"bootstrap.servers": text}).bootstrap_servers) == addresses


def test_an_ipv6_address_is_printed_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        pytest.param("bootstrap.servers", "localhost", "host:port", id="no port"),
        pytest.param("bootstrap.servers", "a:0", "host:port", id="port 0"),
        pytest.param("bootstrap.servers", "a:65536", "host:port", id="port too large"),
        pytest.param("bootstrap.servers", "::1:9092", "host:port", id="IPv6 without brackets"),
        pytest.param("bootstrap.servers", "http://a:1", "host:port", id="a URL"),
        pytest.param("bootstrap.servers", " ,", "at least one", id="nothing"),
        pytest.param("acks", "2", "must be one of all, -1, 1, 0", id="acks 2"),
        pytest.param("batch.size", "16k", "whole number", id="not a number"),
        pytest.param("fetch.min.bytes", "0", "must be from 1", id="below its least"),
        pytest.param("max.request.size", "2147483648", "must be from 1 to 2147483647", id="beyond an int32"),
        pytest.param("compression.type", "brotli", "must be one of none, gzip", id="unknown codec"),
        pytest.param("compression.zstd.level", "23", "must be from", id="level too high"),
        pytest.param("security.protocol", "TLS", "must be one of plaintext, ssl", id="no security protocol"),
        pytest.param("isolation.level", "committed", "one of read_uncommitted, read_committed", id="no level"),
        pytest.param("enable.idempotence", "yes", "must be true or false", id="idempotence"),
        pytest.param("check.crcs", "false", "only true is", id="CRCs off"),
        pytest.param("sasl.kerberos.kinit.cmd", "x", "not supported yet", id="a name of a refused family"),
        pytest.param("ssl.engine.factory.class", "x", "not the JVM's", id="another family"),
        pytest.param("transactional.id", "x", "not supported yet", id="transactions"),
        pytest.param("linger.ms", "-1", "must be from 0", id="linger"),
        pytest.param("key.serializer", "x", "has no meaning here", id="serializer"),
        pytest.param("batch.sice", "5", "did you mean batch.size?", id="a slip of the finger"),
        pytest.param("Batch.Size", "5", "did you mean batch.size?", id="wrong case"),
        pytest.param("zzzzzz", "5", "zzzzzz is not an option", id="nothing near"),
    ],
)
def test_what_is_wrong_is_refused_by_name_and_says_what_to_do(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ClientConfig.parse({**SERVERS, name: value})
    assert name in str(refused.value)
    assert says in str(refused.value)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is required"):
        ClientConfig.parse({})


@pytest.mark.parametrize(
    ("role", "name", "value"),
    [
        pytest.param(Role.CONSUMER, "acks", "all", id="a consumer has no acks"),
        pytest.param(Role.PRODUCER, "fetch.min.bytes", "1", id="a producer fetches nothing"),
        pytest.param(Role.SINK, "fetch.min.bytes", "1", id="nor does a sink"),
        pytest.param(Role.PRODUCER, "default.api.timeout.ms", "5", id="a producer has times of its own for what waits"),
    ],
)
def test_options_of_the_other_role_are_refused(role: Role, name: str, value: str) -> None:
    ClientConfig.parse({**SERVERS, name: value})
    with pytest.raises(ConfigError, match=f"this is a {role.value}"):
        ClientConfig.parse({**SERVERS, name: value}, role)


def test_a_sink_takes_what_a_producer_takes_and_the_time_for_which_its_driver_looks_for_the_cluster() -> None:
    assert set(names_of(Role.SINK)) - set(names_of(Role.PRODUCER)) == {"default.api.timeout.ms"}
    assert set(names_of(Role.PRODUCER)) <= set(names_of(Role.SINK))
    options = {**SERVERS, "default.api.timeout.ms": "5"}
    assert ClientConfig.parse(options, Role.SINK).default_api_timeout_ms == 5


@pytest.mark.parametrize(
    ("options", "attribute", "value"),
    [
        pytest.param({"acks": "all"}, "acks", -1, id="all is -1"),
        pytest.param({"acks": "0"}, "acks", 0, id="acks 0"),
        pytest.param({"compression.type": "ZSTD"}, "compression_type", "zstd", id="case of a choice"),
        pytest.param({"compression.type": "none"}, "compression_level", None, id="no codec has no level"),
        pytest.param({"compression.type": "snappy"}, "compression_level", None, id="snappy has no level"),
        pytest.param(
            {"compression.type": "zstd", "compression.zstd.level": "7"}, "compression_level", 7, id="the codec's level"
        ),
        pytest.param({"compression.type": "lz4"}, "compression_level", None, id="lz4 is fast by default"),
        pytest.param(
            {"compression.type": "lz4", "compression.lz4.level": "12"}, "compression_level", 12, id="lz4 made small"
        ),
        pytest.param({"security.protocol": "plaintext"}, "security_protocol", "PLAINTEXT", id="the supported value"),
    ],
)
def test_values_are_converted(options: dict[str, str], attribute: str, value: object) -> None:
    assert getattr(ClientConfig.parse({**SERVERS, **options}), attribute) == value


def test_equal_options_are_one_key_and_survive_pickling() -> None:
    config = ClientConfig.parse({**SERVERS, "acks": "1"})
    assert {config: 1}[pickle.loads(pickle.dumps(config))] == 1
    assert config != ClientConfig.parse(SERVERS)


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_every_default_passes_its_own_validator_and_every_row_has_a_line_of_doc(option: Option) -> None:
    default = option.default
    assert option.doc
    if default in ("", (), None):  # nothing unless it is given
        return
    assert option.parse(",".join(default) if isinstance(default, tuple) else str(default)) == default
