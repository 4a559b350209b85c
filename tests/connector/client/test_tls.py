"""Connections in TLS, to a listener that is made for them and to others; what fails says what to do."""

import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pylog.broker_lite.protocol import metadata
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import ClientError, ConfigError, ConnectionLost, NotKafka, Retriable, TlsFailed
from pylog.connector.client.fetcher import fetch_range
from pylog.connector.client.tls import openssl_name, tls_context
from pylog.storage.records import Record, encode_batch
from tests.connector.client.fake_kafka import METADATA, FakeKafka, Fault
from tests.connector.client.test_fork import in_child
from tests.support.certificates import Authority, Identity
from tests.support.secured_proxy import SecuredProxy

REQUEST = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="orders")], False)
Open = Callable[..., Connection]
Secure = Callable[..., SecuredProxy]


@pytest.fixture
def secure(kafka: FakeKafka, authority: Authority) -> Iterator[Secure]:
    """`secure(identity, asks_for_certificate=True)`: a listener with TLS before the fake Kafka."""
    target = kafka.ports[0]
    with ExitStack() as stack:

        def make(identity: Identity | None = None, *, asks_for_certificate: bool = False) -> SecuredProxy:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain((identity or authority.broker).store)
            if asks_for_certificate:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(authority.certificate)
            proxy = stack.enter_context(SecuredProxy(target, tls=context))
            kafka.ports[0] = proxy.port  # which is where it says it is, from now on
            return proxy

        yield make


def config_of(servers: str, authority: Authority | None, **options: str) -> ClientConfig:
    trusted = {"ssl.truststore.location": str(authority.certificate)} if authority else {}
    named = {name.replace("_", "."): value for name, value in options.items()}
    return ClientConfig.parse({"bootstrap.servers": servers, "security.protocol": "SSL", **trusted, **named})


def opened(config: ClientConfig) -> Connection:
    return Connection(config.bootstrap_servers[0], config)


def asked(config: ClientConfig) -> str | None:
    connection = opened(config)
    try:
        return connection.call(metadata.SPEC, REQUEST).topics[0].name
    finally:
        connection.close()


def test_a_range_is_read_through_tls(kafka: FakeKafka, secure: Secure, authority: Authority) -> None:
    for number in range(4):
        value = bytes([number]) * (1 << 20)
        kafka.logs["orders", 0].append(bytes(encode_batch([Record(0, 0, None, value)])))
    cluster = Cluster(config_of(secure().bootstrap_servers, authority, fetch_max_wait_ms="5"))
    fetched = list(fetch_range(cluster, "orders", 0, 0, 4))
    assert fetched[-1].next_offset == 4
    assert sum(len(part.records) for part in fetched) > 4 << 20
    cluster.pool.close()


def test_certificates_may_stand_in_the_option_and_on_one_line(secure: Secure, authority: Authority) -> None:
    pem = authority.certificate.read_text()
    for text in (pem, " ".join(pem.split("\n"))):
        assert asked(config_of(secure().bootstrap_servers, None, ssl_truststore_certificates=text)) == "orders"


def test_an_idle_connection_is_fit_until_its_peer_closes_it(
    secure: Secure, authority: Authority, kafka: FakeKafka
) -> None:
    connection = opened(config_of(secure().bootstrap_servers, authority))
    assert connection.is_fit()  # though the peer has sent session tickets
    assert connection.call(metadata.SPEC, REQUEST).topics
    kafka.stop(0)
    with pytest.raises(ConnectionLost):
        connection.call(metadata.SPEC, REQUEST)
    assert not connection.is_fit()


def test_a_forked_child_leaves_its_parents_connection_alone(secure: Secure, authority: Authority) -> None:
    connection = opened(config_of(secure().bootstrap_servers, authority))
    assert in_child(lambda: not connection.is_open)
    assert connection.call(metadata.SPEC, REQUEST).topics


def test_a_peer_that_falls_silent_is_given_up(kafka: FakeKafka, secure: Secure, authority: Authority) -> None:
    connection = opened(config_of(secure().bootstrap_servers, authority, request_timeout_ms="300"))
    kafka.faults[METADATA].append(Fault.SILENCE)
    with pytest.raises(ConnectionLost, match=r"no answer to Metadata within request\.timeout\.ms"):
        connection.call(metadata.SPEC, REQUEST)


# Who is there


def wrong_ca(authority: Authority) -> Identity:
    return authority.stranger.issue("broker-of-a-stranger")


def expired(authority: Authority) -> Identity:
    return authority.issue("expired", days=-1)


def of_another_host(authority: Authority) -> Identity:
    return authority.issue("elsewhere", names="DNS:elsewhere.example")


@pytest.mark.parametrize(
    ("identity", "says"),
    [
        pytest.param(wrong_ca, r"signed by none of the CAs that ssl\.truststore", id="a CA that is not believed"),
        pytest.param(expired, "has expired", id="expired"),
        pytest.param(of_another_host, r"is not for 127\.0\.0\.1 .*advertised\.listeners", id="for another host"),
    ],
)
def test_a_certificate_that_is_no_good_is_refused(
    secure: Secure, authority: Authority, identity: Callable[[Authority], Identity], says: str
) -> None:
    config = config_of(secure(identity(authority)).bootstrap_servers, authority)
    with pytest.raises(TlsFailed, match=says) as raised:
        asked(config)
    assert not isinstance(raised.value, Retriable)
    with pytest.raises(TlsFailed):  # at once: no broker of the list mends it
        Cluster(config).refresh()


def test_a_certificate_that_is_trusted_itself_needs_no_ca(secure: Secure, authority: Authority) -> None:
    own = {"ssl_truststore_location": str(authority.broker.certificate)}
    assert asked(config_of(secure().bootstrap_servers, None, **own)) == "orders"


def test_without_a_truststore_the_systems_cas_are_asked(secure: Secure) -> None:
    with pytest.raises(TlsFailed, match=r"of this system \(there is no ssl\.truststore\.location\)"):
        asked(config_of(secure().bootstrap_servers, None))


def test_another_host_will_do_where_names_are_not_looked_at(secure: Secure, authority: Authority) -> None:
    servers = secure(of_another_host(authority)).bootstrap_servers
    assert asked(config_of(servers, authority, ssl_endpoint_identification_algorithm="")) == "orders"
    with pytest.raises(TlsFailed, match="signed by none"):  # but the CA still counts
        asked(config_of(servers, authority.stranger, ssl_endpoint_identification_algorithm=""))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_broker_that_asks_for_a_certificate_gets_it(secure: Secure, authority: Authority, version: str) -> None:
    servers = secure(asks_for_certificate=True).bootstrap_servers
    locked = authority.issue("locked", password="kpw")
    own = {"ssl_enabled_protocols": version}
    assert asked(config_of(servers, authority, ssl_keystore_location=str(authority.client.store), **own)) == "orders"
    given = {
        "ssl_keystore_key": " ".join(locked.key.read_text().split("\n")),
        "ssl_keystore_certificate_chain": locked.certificate.read_text(),
        "ssl_key_password": "kpw",
    }
    assert asked(config_of(servers, authority, **given, **own)) == "orders"
    with pytest.raises((TlsFailed, ConnectionLost), match=r"a certificate of the client|closed|reset"):
        asked(config_of(servers, authority, **own))
    stranger = authority.stranger.issue("client-of-a-stranger")
    with pytest.raises((TlsFailed, ConnectionLost), match=r"refuses the certificate of ssl\.keystore|closed|reset"):
        asked(config_of(servers, authority, ssl_keystore_location=str(stranger.store), **own))


# What is spoken


def test_plain_text_to_a_listener_with_tls() -> None:
    def answer(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(bytes.fromhex("15030300020246"))  # a fatal alert: what came is no version of TLS

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        config = ClientConfig.parse({"bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}"})
        with pytest.raises(NotKafka, match=r"it answers in TLS.*is security\.protocol the one"):
            opened(config)


def test_tls_to_a_listener_without_it(kafka: FakeKafka, authority: Authority) -> None:
    with SecuredProxy(kafka.ports[0]) as plain, pytest.raises(ConnectionLost, match="as by a listener without TLS"):
        opened(config_of(plain.bootstrap_servers, authority))


@pytest.mark.parametrize(
    ("options", "version", "cipher"),
    [
        pytest.param({}, "TLSv1.3", None, id="the newest"),
        pytest.param({"ssl_protocol": "TLSv1.2"}, "TLSv1.2", None, id="no newer than"),
        pytest.param({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2", None, id="only the older"),
        pytest.param(
            {"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            id="a suite of the older",
        ),
    ],
)
def test_versions_and_suites_are_those_that_are_asked_for(
    secure: Secure, authority: Authority, options: dict[str, str], version: str, cipher: str | None
) -> None:
    proxy = secure()
    assert asked(config_of(proxy.bootstrap_servers, authority, **options)) == "orders"
    assert (proxy.ciphers[-1] in ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")) == (version == "TLSv1.3")
    assert cipher in (None, proxy.ciphers[-1])


def test_the_names_of_suites_are_those_of_openssl() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to ask")
    told = subprocess.run(
        ["openssl", "ciphers", "-stdname", "-tls1_2", "HIGH:!PSK:!SRP:!aNULL:!CCM8:!CCM:!ARIA"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = [line.split()[:3:2] for line in told.splitlines()]
    older = {standard: name for standard, name in rows if "_WITH_" in standard}
    assert len(older) > 20
    assert {standard: openssl_name(standard) for standard in older} == older


# Keys and certificates that cannot be used


def test_stores_of_the_jvm_are_refused_with_words_that_help(tmp_path: Path) -> None:
    for content in (b"\xfe\xed\xfe\xed\0\0\0\2", b"\x30\x82\x03\x21"):
        (tmp_path / "store").write_bytes(content)
        with pytest.raises(ConfigError, match=r"ssl\.truststore\.location is a JKS or PKCS12 file: .*keytool"):
            tls_context(config_of("a:1", None, ssl_truststore_location=str(tmp_path / "store")))


def options_without(tmp_path: Path, authority: Authority) -> Iterator[tuple[dict[str, str], str]]:
    client, locked = authority.client, authority.issue("locked", password="kpw")
    other = authority.issue("other")
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(client.key.read_text() + other.certificate.read_text())
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    yield {"ssl_truststore_location": str(tmp_path / "none")}, "ssl.truststore.location cannot be read on this machine"
    yield {"ssl_truststore_location": str(empty)}, "ssl.truststore.* holds no certificates"
    yield {"ssl_truststore_certificates": "s3cret"}, "ssl.truststore.* holds no certificates"
    yield {"ssl_keystore_location": str(tmp_path / "none")}, "ssl.keystore.location cannot be read"
    yield {"ssl_keystore_location": str(client.certificate)}, "must hold a private key and its certificate"
    yield {"ssl_keystore_location": str(client.key)}, "must hold a private key and its certificate"
    yield {"ssl_keystore_location": str(mixed)}, "do key and certificate belong together"
    yield {"ssl_keystore_location": str(locked.store)}, "ssl.key.password is required"
    yield {"ssl_keystore_location": str(locked.store), "ssl_key_password": "s3cret"}, "is ssl.key.password right?"
    yield {"ssl_cipher_suites": "TLS_NULL_WITH_NOTHING"}, "ssl.cipher.suites names none"
    yield {"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "all suites of TLSv1.3 or none"
    yield {"ssl_enabled_protocols": "TLSv1.3", "ssl_protocol": "TLSv1.2"}, "ssl.enabled.protocols is TLSv1.3, but"


def test_what_cannot_be_used_is_refused_by_its_option(tmp_path: Path, authority: Authority) -> None:
    for options, says in options_without(tmp_path, authority):
        with pytest.raises(ConfigError) as refused:
            tls_context(config_of("a:1", None, **options))
        assert says in str(refused.value)
        assert "s3cret" not in str(refused.value)


def test_a_context_is_made_once_and_anew_when_its_file_has_changed(tmp_path: Path, authority: Authority) -> None:
    trusted = tmp_path / "ca.pem"
    shutil.copy(authority.certificate, trusted)
    config = config_of("a:1", None, ssl_truststore_location=str(trusted))
    first = tls_context(config)
    assert tls_context(replace(config, client_id="another")) is first
    os.utime(trusted, ns=(1, 1))
    assert tls_context(config) is not first


def test_errors_of_tls_survive_pickling() -> None:
    import pickle

    for error in (TlsFailed("a:1", "cause"),):
        copy: Any = pickle.loads(pickle.dumps(error))
        assert isinstance(copy, ClientError)
        assert str(copy) == str(error)
