"""Where tokens come from, how long they are used, and what is said where there is none."""

import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pylog.connector.client import tokens
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import ConfigError, TokenUnavailable
from pylog.connector.client.jaas import OAUTH_MODULE
from tests.support.certificates import Authority

KAFKAS_HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"


def config_of(jaas: str = "", **options: str) -> ClientConfig:
    named = {name.replace("_", "."): value for name, value in options.items()}
    login = {"sasl.jaas.config": f"{OAUTH_MODULE} required {jaas};"} if jaas else {}
    return ClientConfig.parse(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            **login,
            **named,
        }
    )


def claims(text: str) -> Any:
    head, body, signature = text.split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def test_an_unsigned_token_has_the_claims_of_its_options() -> None:
    config = config_of(
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="3.5" unsecuredLoginLifetimeSeconds="60" '
        'unsecuredLoginListClaim_scope="|read|write" unsecuredLoginExtension_traceId="x1"'
    )
    found = claims(tokens.token(config).text.reveal())
    assert found["exp"] - found["iat"] == pytest.approx(60)
    assert {name: found[name] for name in ("sub", "n", "scope")} == {
        "sub": "alice",
        "n": 3.5,
        "scope": ["read", "write"],
    }
    assert tokens.extensions(config) == {"traceId": "x1"}


def test_an_unsigned_token_is_not_made_later_than_a_brokers_clock_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.1239)
    found = claims(tokens.token(config_of('unsecuredLoginStringClaim_sub="alice"')).text.reveal())
    assert found["iat"] == 1_700_000_000_123 / 1000  # the very division by which Kafka's validator compares


@pytest.mark.parametrize(
    ("jaas", "says"),
    [
        pytest.param('unsecuredLoginStringClaim_name="s3cret"', "StringClaim_sub, the user's name", id="nobody's name"),
        pytest.param('unsecuredLoginStringClaim_sub="a" unsecuredLoginStringClaim_exp="s3cret"', "exp", id="an end"),
        pytest.param(
            'unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_n="s3cret"', "a number", id="no number"
        ),
        pytest.param('unsecuredLoginStringClaim_sub="a" unsecuredLoginS3cret="s3cret"', "does not know", id="unknown"),
    ],
)
def test_options_of_unsigned_tokens_that_cannot_be_are_refused(jaas: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        tokens.token(config_of(jaas))
    assert "s3cret" not in str(refused.value)


# A function of the user's

calls: list[Mapping[str, str]] = []


def for_an_hour(options: Mapping[str, str]) -> tuple[str, float]:
    calls.append(options)
    return f"hour-{len(calls)}", time.time() + 3600


def for_now(options: Mapping[str, str]) -> str:
    calls.append(options)
    return f"now-{len(calls)}"


def jwt(options: Mapping[str, str]) -> str:
    calls.append(options)
    body = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 3600}).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def over(options: Mapping[str, str]) -> tuple[str, float]:
    return "over", time.time() - 1


def failing(options: Mapping[str, str]) -> str:
    raise OSError("the vault is closed")


def number(options: Mapping[str, str]) -> int:
    return 7


def with_space(options: Mapping[str, str]) -> str:
    return "s3cret token"


NO_FUNCTION = "text"


@pytest.mark.parametrize(
    ("provider", "asked_for"),
    [
        pytest.param("for_an_hour", 1, id="its end is given: used again"),
        pytest.param("jwt", 1, id="its end is in it: used again"),
        pytest.param("for_now", 3, id="its end is not known: asked for each time"),
    ],
)
def test_a_token_is_used_until_its_end_is_near(monkeypatch: pytest.MonkeyPatch, provider: str, asked_for: int) -> None:
    calls.clear()
    config = config_of(
        sasl_oauthbearer_token_provider=f"{__name__}:{provider}",
        sasl_jaas_config=f"{OAUTH_MODULE} required test={provider};",
    )
    for _ in range(3):
        tokens.token(config)
    assert len(calls) == asked_for
    later = time.time() + 3600 * tokens.USED_PART + 1
    monkeypatch.setattr(tokens.time, "time", lambda: later)
    tokens.token(config)
    assert len(calls) == asked_for + 1


def test_a_token_that_was_refused_is_not_used_again() -> None:
    calls.clear()
    config = config_of(
        sasl_oauthbearer_token_provider=f"{__name__}:for_an_hour",
        sasl_jaas_config=f"{OAUTH_MODULE} required test=refused;",
    )
    first = tokens.token(config)
    tokens.forget_token(config)
    assert tokens.token(config) != first


@pytest.mark.parametrize(
    ("provider", "error", "says"),
    [
        pytest.param("failing", TokenUnavailable, "OSError: the vault is closed", id="it raises"),
        pytest.param("over", TokenUnavailable, "has expired already", id="its token is over"),
        pytest.param("number", ConfigError, "must return a token .*returned int", id="it returns something else"),
        pytest.param("with_space", ConfigError, "must return a token", id="a token that cannot be sent"),
        pytest.param("nowhere", ConfigError, "which this process cannot import", id="it is not there"),
        pytest.param("NO_FUNCTION", ConfigError, "no function", id="it is no function"),
    ],
)
def test_a_function_that_gives_no_token_is_told_by_name(provider: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as raised:
        tokens.token(config_of(sasl_oauthbearer_token_provider=f"{__name__}:{provider}"))
    assert "s3cret" not in str(raised.value)


# A token endpoint


class Endpoint:
    def __init__(self, authority: Authority) -> None:
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.status = 200
        self.answer: Any = {"access_token": "granted", "expires_in": 3600}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.requests.append((self.path, dict(self.headers), body))
                self.send_response(outer.status)
                self.send_header("Location", "https://elsewhere.invalid/")
                self.end_headers()
                self.wfile.write(json.dumps(outer.answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.broker.store)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}/oauth/token?tenant=t"
        self.trust = f'ssl.truststore.location="{authority.certificate}"'

    def config(self, jaas: str = 'clientId="me" clientSecret="s3cret"', **options: str) -> ClientConfig:
        return config_of(f"{jaas} {self.trust}", sasl_oauthbearer_token_endpoint_url=self.url, **options)


@pytest.fixture
def endpoint(authority: Authority) -> Iterator[Endpoint]:
    endpoint = Endpoint(authority)
    threading.Thread(target=endpoint.server.serve_forever, daemon=True).start()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()


def test_an_endpoint_gives_a_token_for_a_clients_secret(endpoint: Endpoint) -> None:
    config = endpoint.config(
        'clientId="me" clientSecret="s3cret" scope="a b"', sasl_login_callback_handler_class=KAFKAS_HANDLER
    )
    assert tokens.token(config).text.reveal() == "granted"
    assert tokens.token(config).text.reveal() == "granted"
    [(path, headers, body)] = endpoint.requests
    assert path == "/oauth/token?tenant=t"
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"me:s3cret").decode()
    assert body == "grant_type=client_credentials&scope=a%20b"


@pytest.mark.parametrize(
    ("status", "answer", "error", "says"),
    [
        pytest.param(401, {"error": "invalid_client"}, ConfigError, r"401 Unauthorized \(invalid_client\)", id="no"),
        pytest.param(503, {}, TokenUnavailable, "503", id="not now"),
        pytest.param(302, {}, ConfigError, "302", id="elsewhere: the secret does not go there"),
        pytest.param(200, {"token": "x"}, ConfigError, "without an access_token", id="no token in it"),
        pytest.param(200, [], ConfigError, "without an access_token", id="no object"),
    ],
)
def test_an_endpoint_that_gives_none_is_told_of(
    endpoint: Endpoint, status: int, answer: Any, error: type[Exception], says: str
) -> None:
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises(error, match=says) as raised:
        tokens.token(endpoint.config())
    assert "s3cret" not in str(raised.value)


def test_an_endpoint_whose_certificate_is_not_believed_gets_no_secret(endpoint: Endpoint) -> None:
    config = config_of(
        'clientId="me" clientSecret="s3cret"', sasl_oauthbearer_token_endpoint_url=endpoint.url, client_id="wary"
    )
    with pytest.raises(TokenUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        tokens.token(config)
    assert endpoint.requests == []
