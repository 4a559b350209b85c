"""Our client on listeners of a real Apache Kafka that have TLS and SASL."""

import time
from typing import Any

import pytest

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import AuthenticationFailed, BrokerUnavailable, ConnectionLost, NotKafka, TlsFailed
from pylog.connector.client.fetcher import fetch_range
from tests.support.certificates import Authority
from tests.support.secured_kafka import SESSION_LIFETIME_MS, WAYS_IN, SecuredKafka

ONCE = {"retries": "0"}


def cluster_of(options: dict[str, str], **more: str) -> Cluster:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return Cluster(ClientConfig.parse({**options, **named}))


@pytest.mark.parametrize(("listener", "mechanism"), WAYS_IN)
def test_every_way_in(secured: SecuredKafka, listener: str, mechanism: str) -> None:
    cluster = cluster_of(secured.options(listener, mechanism))
    topic = f"way-{listener}-{mechanism}".lower()
    cluster.create_topic(topic, 1, exists_ok=True)
    assert cluster.latest([(topic, 0)]) == {(topic, 0): 0}
    cluster.pool.close()


def test_a_password_is_not_prepared(secured: SecuredKafka) -> None:
    """RFC 5802 asks for SASLprep, which makes an a of ª. Kafka does not do it, neither here nor there."""
    cluster_of(secured.options("SASL_SSL", "SCRAM-SHA-256", name="b=ob", password="paªss")).refresh()
    with pytest.raises(AuthenticationFailed):
        cluster_of(secured.options("SASL_SSL", "SCRAM-SHA-256", name="b=ob", password="paass")).refresh()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["alice", "mallory"])
def test_a_wrong_password_is_told_in_kafkas_words(secured: SecuredKafka, mechanism: str, name: str) -> None:
    with pytest.raises(AuthenticationFailed, match=r"Authentication failed.*are username and password") as raised:
        cluster_of(secured.options("SASL_PLAINTEXT", mechanism, name=name, password="n0t-it")).refresh()
    assert "n0t-it" not in str(raised.value)


def test_a_token_without_an_end_is_refused(secured: SecuredKafka) -> None:
    options = secured.options("SASL_PLAINTEXT", "OAUTHBEARER")
    options["sasl.oauthbearer.token.provider"] = f"{__name__}:endless_token"
    with pytest.raises(AuthenticationFailed, match="is the token right"):
        cluster_of(options).refresh()


def endless_token(options: dict[str, str]) -> str:
    return "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."  # it says who, and not until when


@pytest.mark.parametrize(
    ("listener", "protocol", "error", "says"),
    [
        pytest.param("SSL", "PLAINTEXT", NotKafka, "answers in TLS", id="plain text to TLS"),
        pytest.param("SASL_SSL", "SASL_PLAINTEXT", NotKafka, "answers in TLS", id="SASL without TLS to TLS"),
        pytest.param("PLAINTEXT", "SSL", BrokerUnavailable, "as by a listener without TLS", id="TLS to plain text"),
        pytest.param("SASL_PLAINTEXT", "SASL_SSL", BrokerUnavailable, "as by a listener without TLS", id="TLS to SASL"),
        pytest.param("SASL_PLAINTEXT", "PLAINTEXT", ConnectionLost, "as a listener with SASL does", id="no SASL"),
        pytest.param("SASL_SSL", "SSL", ConnectionLost, "as a listener with SASL does", id="no SASL, in TLS"),
        pytest.param(
            "PLAINTEXT", "SASL_PLAINTEXT", AuthenticationFailed, "its listener has no SASL", id="SASL to none"
        ),
        pytest.param("SSL", "SASL_SSL", AuthenticationFailed, "its listener has no SASL", id="SASL to none, in TLS"),
    ],
)
def test_a_protocol_that_the_listener_has_not(
    secured: SecuredKafka, listener: str, protocol: str, error: type[Exception], says: str
) -> None:
    options = (
        secured.options(protocol, "PLAIN" if protocol.startswith("SASL") else "") if protocol != "PLAINTEXT" else {}
    )
    with pytest.raises(error, match=says):
        cluster_of({**options, "bootstrap.servers": secured.servers(listener), **ONCE}).refresh()


def test_a_ca_that_is_not_believed(secured: SecuredKafka, kafka_authority: Authority) -> None:
    options = {**secured.options("SSL"), "ssl.truststore.location": str(kafka_authority.stranger.certificate)}
    with pytest.raises(TlsFailed, match="signed by none of the CAs"):
        cluster_of(options).refresh()


def test_sessions_are_renewed_in_place(secured: SecuredKafka) -> None:
    """Kafka ends a connection that is used after its session: here each is used for longer than two of them."""
    cluster = cluster_of(secured.options("SASL_SSL", "SCRAM-SHA-512"), **ONCE)
    cluster.refresh()
    [connection] = cluster.pool._idle[cluster.config.bootstrap_servers[0]]
    ends = {connection._session_ends}
    deadline = time.monotonic() + 2.5 * SESSION_LIFETIME_MS / 1000
    while time.monotonic() < deadline:
        cluster.refresh()
        time.sleep(0.2)
        ends.add(connection._session_ends)
    assert len(ends) >= 3
    assert connection.is_open


def test_a_session_that_ends_under_a_long_read_does_not_end_it(secured: SecuredKafka) -> None:
    from confluent_kafka import Producer

    cluster = cluster_of(secured.options("SASL_PLAINTEXT", "PLAIN"), max_partition_fetch_bytes="1000")
    cluster.create_topic("long-read", 1)
    producer = Producer({"bootstrap.servers": secured.bootstrap_servers, "linger.ms": 0, "batch.size": 2000})
    count = 60
    for number in range(count):
        producer.produce("long-read", bytes([number]) * 1000)
        producer.poll(0)
    assert producer.flush(30) == 0
    pause = 2.2 * SESSION_LIFETIME_MS / 1000 / count
    position = 0
    for part in fetch_range(cluster, "long-read", 0, 0, count):
        position = part.next_offset
        time.sleep(pause)  # a task that is busy
    assert position == count


def test_a_kafka_that_asks_for_certificates(kafka_authority: Authority) -> None:
    locked = kafka_authority.issue("locked", password="kpw")
    with SecuredKafka(kafka_authority, {"ssl.client.auth": "required"}) as kafka:
        own: Any = {"ssl.keystore.location": str(locked.store), "ssl.key.password": "kpw"}
        cluster_of({**kafka.options("SSL"), **own}).refresh()
        for more, says in (
            ({}, "asks for a certificate|was lost"),
            ({"ssl.keystore.location": str(kafka_authority.stranger.issue("s").store)}, "refuses the certif|was lost"),
        ):
            with pytest.raises((TlsFailed, ConnectionLost, BrokerUnavailable), match=says):
                cluster_of({**kafka.options("SSL"), **more, **ONCE}).refresh()
