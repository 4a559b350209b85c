"""Clients that say who they are: each mechanism, what is refused and how, and sessions that end."""

import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from pylog.broker_lite.protocol import metadata
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import AuthenticationFailed, BrokerUnavailable, ConnectionLost, Retriable
from pylog.connector.client.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tests.connector.client.fake_kafka import METADATA, FakeKafka
from tests.support.sasl_servers import Serving, serve_oauthbearer, serve_plain, serve_scram
from tests.support.secured_proxy import SecuredProxy

USERS = {"alice": 's3cret"with=signs,;'}
REQUEST = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="orders")], False)
MODULES = {"PLAIN": PLAIN_MODULE, "SCRAM-SHA-256": SCRAM_MODULE, "SCRAM-SHA-512": SCRAM_MODULE}
Secure = Callable[..., SecuredProxy]


@pytest.fixture
def secure(kafka: FakeKafka) -> Iterator[Secure]:
    """`secure(mechanisms, session_lifetime_ms=...)`: a listener with SASL before the fake Kafka."""
    target = kafka.ports[0]
    with ExitStack() as stack:

        def make(mechanisms: Mapping[str, Callable[[], Serving]] | None = None, **options: int) -> SecuredProxy:
            every = {
                "PLAIN": lambda: serve_plain(USERS),
                "SCRAM-SHA-256": lambda: serve_scram("SCRAM-SHA-256", USERS),
                "SCRAM-SHA-512": lambda: serve_scram("SCRAM-SHA-512", USERS),
            }
            proxy = SecuredProxy(target, mechanisms=every if mechanisms is None else mechanisms, **options)
            kafka.ports[0] = proxy.port
            return stack.enter_context(proxy)

        yield make


def jaas(mechanism: str, name: str = "alice", password: str = USERS["alice"]) -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{MODULES[mechanism]} required username="{name}" password="{quoted}";'


def config_of(proxy: SecuredProxy, mechanism: str = "PLAIN", **options: str) -> ClientConfig:
    named = {name.replace("_", "."): value for name, value in options.items()}
    login = {} if mechanism == "OAUTHBEARER" else {"sasl.jaas.config": jaas(mechanism)}
    return ClientConfig.parse(
        {
            "bootstrap.servers": proxy.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            **login,
            **named,
        }
    )


def opened(config: ClientConfig) -> Connection:
    return Connection(config.bootstrap_servers[0], config)


@pytest.mark.parametrize("mechanism", list(MODULES))
def test_a_client_with_the_right_password_is_let_in(secure: Secure, mechanism: str) -> None:
    proxy = secure()
    assert opened(config_of(proxy, mechanism)).call(metadata.SPEC, REQUEST).topics[0].name == "orders"
    assert proxy.authentications == [mechanism]


@pytest.mark.parametrize("mechanism", list(MODULES))
@pytest.mark.parametrize(("name", "password"), [("alice", "n0t-it"), ("mallory", "n0t-it")], ids=["password", "name"])
def test_a_client_with_a_wrong_one_is_not_and_is_not_tried_again(
    secure: Secure, kafka: FakeKafka, mechanism: str, name: str, password: str
) -> None:
    proxy = secure()
    config = config_of(proxy, mechanism, sasl_jaas_config=jaas(mechanism, name, password))
    with pytest.raises(AuthenticationFailed, match=r"does not let this client in: .*username and password") as raised:
        Cluster(config).latest([("orders", 0)])
    assert not isinstance(raised.value, Retriable)
    assert proxy.connections_count == 1
    assert password not in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_mechanism_that_is_not_enabled_is_told_with_those_that_are(secure: Secure) -> None:
    proxy = secure({"SCRAM-SHA-512": lambda: serve_scram("SCRAM-SHA-512", USERS), "GSSAPI": lambda: serve_plain({})})
    with pytest.raises(AuthenticationFailed, match=r"sasl\.mechanism=PLAIN; it has: GSSAPI, SCRAM-SHA-512"):
        opened(config_of(proxy))


def test_a_broker_that_does_not_know_the_password_is_not_believed(secure: Secure) -> None:
    proxy = secure({"SCRAM-SHA-256": lambda: serve_scram("SCRAM-SHA-256", {"alice": "guessed"}, lies=True)})
    with pytest.raises(AuthenticationFailed, match="has not proved that it knows the password"):
        opened(config_of(proxy, "SCRAM-SHA-256"))


def test_a_broker_that_makes_the_password_cheap_to_guess_is_refused(secure: Secure) -> None:
    proxy = secure({"SCRAM-SHA-256": lambda: serve_scram("SCRAM-SHA-256", USERS, iterations=1)})
    with pytest.raises(AuthenticationFailed, match="asks for 1 iterations"):
        opened(config_of(proxy, "SCRAM-SHA-256"))


def test_a_listener_with_sasl_ends_a_client_without_it(secure: Secure) -> None:
    config = ClientConfig.parse({"bootstrap.servers": secure().bootstrap_servers})
    with pytest.raises(ConnectionLost, match=r"as a listener with SASL does \(is security\.protocol right"):
        opened(config).call(metadata.SPEC, REQUEST)


def test_a_listener_without_sasl_is_told_of(kafka: FakeKafka) -> None:
    with SecuredProxy(kafka.ports[0]) as proxy, pytest.raises(AuthenticationFailed, match="has no SASL"):
        opened(config_of(proxy))


def test_nobody_there_stays_an_error_that_may_pass(secure: Secure) -> None:
    proxy = secure()
    config = config_of(proxy)
    proxy.__exit__()
    with pytest.raises(BrokerUnavailable):
        opened(config)


# Sessions that end (KIP-368)


def test_a_session_that_nears_its_end_is_renewed_on_the_same_connection(secure: Secure) -> None:
    proxy = secure(session_lifetime_ms=600_000)
    connection = opened(config_of(proxy, "SCRAM-SHA-256"))
    for _ in range(3):
        assert connection.call(metadata.SPEC, REQUEST).topics
        assert connection._session_ends is not None
        assert 500 < connection._session_ends - time.monotonic() < 600
        connection._session_ends = time.monotonic() - 1
    assert len(proxy.authentications) == 3
    assert proxy.connections_count == 1


def test_a_session_without_an_end_is_not_renewed(secure: Secure) -> None:
    assert opened(config_of(secure()))._session_ends is None


def test_a_session_is_not_renewed_while_answers_are_under_way(secure: Secure) -> None:
    proxy = secure(session_lifetime_ms=600_000)
    connection = opened(config_of(proxy))
    connection.send(metadata.SPEC, REQUEST)
    connection._session_ends = time.monotonic() - 1
    connection.send(metadata.SPEC, REQUEST)
    assert [connection.decode(metadata.SPEC, connection.receive()).topics[0].name for _ in range(2)] == ["orders"] * 2
    assert len(proxy.authentications) == 1
    assert connection.call(metadata.SPEC, REQUEST).topics
    assert len(proxy.authentications) == 2


def test_an_idle_connection_of_the_pool_is_authenticated_anew(secure: Secure, kafka: FakeKafka) -> None:
    proxy = secure(session_lifetime_ms=600_000)
    cluster = Cluster(config_of(proxy))
    cluster.refresh(["orders"])
    [connection] = cluster.pool._idle[cluster.config.bootstrap_servers[0]]
    connection._session_ends = time.monotonic() - 1
    cluster.refresh(["orders"])
    assert proxy.authentications == ["PLAIN", "PLAIN"]
    assert proxy.connections_count == 1
    assert len(kafka.asked(METADATA)) == 2


# OAUTHBEARER


def own_token(options: Mapping[str, str]) -> str:
    return f"token-of-{options.get('who', 'nobody')}"


def test_a_function_in_python_provides_the_token(secure: Secure) -> None:
    seen: list[str] = []
    proxy = secure({"OAUTHBEARER": lambda: serve_oauthbearer({"token-of-alice"}, seen)})
    config = config_of(
        proxy,
        "OAUTHBEARER",
        sasl_oauthbearer_token_provider=f"{__name__}:own_token",
        sasl_jaas_config=f'{OAUTH_MODULE} required who="alice" extension_logicalCluster="lkc-1";',
    )
    assert opened(config).call(metadata.SPEC, REQUEST).topics
    assert seen == ["n,,\x01auth=Bearer token-of-alice\x01logicalCluster=lkc-1\x01\x01"]


given: list[str] = []


def better_each_time(options: Mapping[str, str]) -> tuple[str, float]:
    given.append(f"token-{len(given) + 1}")
    return given[-1], time.time() + 3600


def test_a_token_that_was_refused_is_not_tried_again(secure: Secure) -> None:
    proxy = secure({"OAUTHBEARER": lambda: serve_oauthbearer({"token-2"}, [])})
    config = config_of(proxy, "OAUTHBEARER", sasl_oauthbearer_token_provider=f"{__name__}:better_each_time")
    with pytest.raises(AuthenticationFailed):
        opened(config)
    for _ in range(2):
        assert opened(config).call(metadata.SPEC, REQUEST).topics
    assert given == ["token-1", "token-2"]


def test_a_token_that_is_refused_is_told_in_the_brokers_words(secure: Secure) -> None:
    proxy = secure({"OAUTHBEARER": lambda: serve_oauthbearer({"another"}, [])})
    config = config_of(proxy, "OAUTHBEARER", sasl_oauthbearer_token_provider=f"{__name__}:own_token")
    with pytest.raises(AuthenticationFailed, match="the token is no good") as raised:
        opened(config)
    assert "token-of" not in str(raised.value)
