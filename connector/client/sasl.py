"""Saying who the client is: SaslHandshake names the mechanism, SaslAuthenticate carries its messages.

A mechanism is a generator: it yields what the client sends, takes what the broker answers, and ends when it is
satisfied. The broker may say how long that holds (KIP-368).
"""

import json
from collections.abc import Generator
from typing import Protocol, TypeVar

from pylog.broker_lite.protocol import sasl_authenticate, sasl_handshake
from pylog.broker_lite.protocol.errors import ErrorCode, name_of
from pylog.broker_lite.protocol.spec import ApiSpec
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import AuthenticationFailed, UnsupportedVersion
from pylog.connector.client.scram import ExchangeFailed, scram
from pylog.connector.client.security_config import OAUTHBEARER, PLAIN
from pylog.connector.client.tokens import extensions, forget_token, token

Request = TypeVar("Request")
Response = TypeVar("Response")
Exchange = Generator[bytes, bytes, None]

_NO_MORE = b"\x01"  # of OAUTHBEARER: let us hear the error


class Calling(Protocol):
    """A connection that has nothing in flight."""

    def call(self, spec: ApiSpec[Request, Response], request: Request) -> Response: ...


def authenticate(connection: Calling, address: str, config: ClientConfig) -> int:
    """How many milliseconds the broker lets it hold, 0 without end; AuthenticationFailed where it does not let in."""
    mechanism = config.sasl_mechanism
    try:
        handshake = connection.call(sasl_handshake.SPEC, sasl_handshake.SaslHandshakeRequest(mechanism))
    except UnsupportedVersion:
        raise AuthenticationFailed(address, _without_sasl(config)) from None
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(sorted(handshake.mechanisms)) or "none"
        raise AuthenticationFailed(address, f"it has not enabled sasl.mechanism={mechanism}; it has: {enabled}")
    if handshake.error_code:
        raise AuthenticationFailed(address, _words(handshake.error_code, None, config))
    try:
        return _exchange(connection, address, config, _start(config))
    except ExchangeFailed as error:
        raise AuthenticationFailed(address, str(error)) from None


def _exchange(connection: Calling, address: str, config: ClientConfig, exchange: Exchange) -> int:
    message = next(exchange)
    while True:
        request = sasl_authenticate.SaslAuthenticateRequest(message)
        answer = connection.call(sasl_authenticate.SPEC, request)
        if answer.error_code:
            forget_token(config)
            raise AuthenticationFailed(address, _words(answer.error_code, answer.error_message, config))
        try:
            message = exchange.send(answer.auth_bytes)
        except StopIteration:
            return answer.session_lifetime_ms


def _words(code: int, said: str | None, config: ClientConfig) -> str:
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        return _without_sasl(config)
    wrong = (
        "is the token right, and has it not expired"
        if config.sasl_mechanism == OAUTHBEARER
        else ("are username and password in sasl.jaas.config right")
    )
    return f"{said or name_of(code)} ({config.sasl_mechanism}; {wrong}?)"


def _without_sasl(config: ClientConfig) -> str:
    return f"its listener has no SASL: is security.protocol={config.security_protocol} right?"


def _start(config: ClientConfig) -> Exchange:
    if config.sasl_mechanism == OAUTHBEARER:
        return _oauthbearer(token(config).text.reveal(), extensions(config))
    assert config.sasl_jaas_config is not None, "parse() has asked for it"
    options = config.sasl_jaas_config.options
    name, password = options["username"].reveal(), options["password"].reveal()
    if config.sasl_mechanism == PLAIN:
        return _plain(name, password)
    return scram(config.sasl_mechanism, name, password)


def _plain(name: str, password: str) -> Exchange:
    yield f"\0{name}\0{password}".encode()


def _oauthbearer(bearer: str, extensions: dict[str, str]) -> Exchange:
    pairs = "".join(f"{key}={text}\x01" for key, text in extensions.items())
    refusal = yield f"n,,\x01auth=Bearer {bearer}\x01{pairs}\x01".encode()
    if refusal:
        yield _NO_MORE
        raise ExchangeFailed(f"the broker refuses the token: {_status(refusal)}")


def _status(refusal: bytes) -> str:
    try:
        return str(json.loads(refusal)["status"])
    except (ValueError, KeyError, TypeError):
        return "it does not say why"
