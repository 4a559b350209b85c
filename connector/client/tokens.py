"""Tokens for OAUTHBEARER: from a function of the user's, from a token endpoint, or unsigned ones, as Kafka has them.

A token is used until four fifths of its time are over; one whose end is not known, for one connection.
"""

import base64
import binascii
import importlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlsplit

from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import ConfigError, TokenUnavailable
from pylog.connector.client.secret import Secret
from pylog.connector.client.security_config import UNSECURED_PREFIX, SecurityConfig
from pylog.connector.client.tls import tls_context

USED_PART = 0.8  # as Kafka's sasl.login.refresh.window.factor
UNSECURED_LIFETIME_SECONDS = 3600
ANSWER_BYTES_MAX = 1 << 20


class Token(NamedTuple):
    text: Secret
    use_until: float  # in seconds since 1970


_tokens: dict[SecurityConfig, Token] = {}


def token(config: ClientConfig) -> Token:
    """The token of this process for this configuration; ConfigError or TokenUnavailable where there is none."""
    known = _tokens.get(config.security)
    if known is not None and time.time() < known.use_until:
        return known
    options = _jaas_options(config)
    if config.sasl_oauthbearer_token_provider:
        text, expiry = _provided(config.sasl_oauthbearer_token_provider, options)
    elif config.sasl_oauthbearer_token_endpoint_url:
        text, expiry = _fetched(config, options)
    else:
        text, expiry = _unsecured(options)
    if not text or not all("!" <= char <= "~" for char in text):
        raise ConfigError("sasl.oauthbearer.token.provider must return a token: visible ASCII without spaces")
    now = time.time()
    expiry = _expiry_in(text) if expiry is None else expiry
    if expiry is not None and expiry <= now:
        raise TokenUnavailable("the token that was to be had has expired already")
    _tokens[config.security] = found = Token(Secret(text), now if expiry is None else now + (expiry - now) * USED_PART)
    return found


def forget_token(config: ClientConfig) -> None:
    """It was refused: the next connection is not to try it again."""
    _tokens.pop(config.security, None)


def extensions(config: ClientConfig) -> dict[str, str]:
    """What some brokers want to know besides the token (KIP-342)."""
    found = {}
    for name, text in _jaas_options(config).items():
        for prefix in (f"{UNSECURED_PREFIX}Extension_", "extension_"):
            if name.startswith(prefix):
                key = name.removeprefix(prefix)
                if not (key.isascii() and key.isalpha()) or key == "auth" or not text or not text.isprintable():
                    raise ConfigError("sasl.jaas.config has an extension that cannot be: names are letters only")
                found[key] = text
    return found


def _jaas_options(config: ClientConfig) -> dict[str, str]:
    jaas = config.sasl_jaas_config
    return {name: secret.reveal() for name, secret in jaas.options.items()} if jaas else {}


def _expiry_in(text: str) -> float | None:
    """Most tokens are JWTs, which tell their end."""
    try:
        claims = text.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None
    return float(found) if isinstance(found, int | float) else None


# A function of the user's

Provider = Callable[[Mapping[str, str]], Any]


def _provided(name: str, options: Mapping[str, str]) -> tuple[str, float | None]:
    provider = load_provider(name)
    try:
        given = provider(options)
    except Exception as error:
        raise TokenUnavailable(f"{name} raised {type(error).__name__}: {error}") from error
    text, expiry = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(text, str) or not isinstance(expiry, int | float | None):
        raise ConfigError(
            f"sasl.oauthbearer.token.provider: {name} must return a token (a str), or (token, its end in seconds since "
            f"1970), and returned {type(given).__name__}"
        )
    return text, expiry


def load_provider(name: str) -> Provider:
    """The function that `module:function` names; ConfigError where there is none in this process."""
    module, _, function = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"sasl.oauthbearer.token.provider names {name}, which this process cannot import: {error}. It must be "
            "installed on the driver and on the executors"
        ) from None
    if not callable(found):
        raise ConfigError(f"sasl.oauthbearer.token.provider names {name}, which is no function")
    return cast(Provider, found)


# A token endpoint (client credentials, RFC 6749 section 4.4)


def _fetched(config: ClientConfig, options: Mapping[str, str]) -> tuple[str, float | None]:
    import http.client  # which brings the reading of mails along

    url = urlsplit(config.sasl_oauthbearer_token_endpoint_url)
    form = "grant_type=client_credentials"
    if options.get("scope"):
        form += f"&scope={quote(options['scope'])}"
    login = base64.b64encode(f"{options['clientId']}:{options['clientSecret']}".encode()).decode()
    headers = {
        "Authorization": f"Basic {login}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    try:  # no redirects are followed: the secret goes nowhere else
        connection = http.client.HTTPSConnection(
            url.hostname or "",
            url.port,
            timeout=config.request_timeout_ms / 1000,
            context=tls_context(_tls_of_endpoint(options)),
        )
        try:
            connection.request("POST", path, form, headers)
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise TokenUnavailable(f"{url.netloc} gives no token: {error or type(error).__name__}") from None
    if answer.status >= 500 or answer.status == 429:
        raise TokenUnavailable(f"{url.netloc} gives no token: {answer.status} {answer.reason}")
    if answer.status != 200:
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url gives no token for this clientId and clientSecret: "
            f"{answer.status} {answer.reason}{_said(body)}"
        )
    return _read_answer(body)


def _tls_of_endpoint(options: Mapping[str, str]) -> ClientConfig:
    """As in Kafka, `ssl.*` among the login module's options are those of the endpoint."""
    own = {name: text for name, text in options.items() if name.startswith("ssl.")}
    try:
        return ClientConfig.parse({"bootstrap.servers": "none:1", "security.protocol": "SSL", **own})
    except ConfigError as error:
        raise ConfigError(f"sasl.jaas.config: {error}") from None


def _said(body: bytes) -> str:
    """The error codes of RFC 6749 are words that hold no secret."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return ""
    return f" ({error})" if isinstance(error, str) and error.isascii() and len(error) < 100 else ""


def _read_answer(body: bytes) -> tuple[str, float | None]:
    try:
        answer = json.loads(body)
        text, seconds = answer["access_token"], answer.get("expires_in")
    except (ValueError, KeyError, TypeError, AttributeError):
        text, seconds = None, None
    if not isinstance(text, str):
        raise ConfigError("sasl.oauthbearer.token.endpoint.url answers without an access_token")
    return text, time.time() + seconds if isinstance(seconds, int | float) else None


# Kafka's unsigned tokens, which a broker takes only where it was told to


def _unsecured(options: Mapping[str, str]) -> tuple[str, float | None]:
    now = int(time.time() * 1000) / 1000  # for a broker, whose clock has milliseconds, more would be later than now
    claims: dict[str, Any] = {}
    lifetime_seconds = float(UNSECURED_LIFETIME_SECONDS)
    for option, text in options.items():
        kind, _, claim = option.removeprefix(UNSECURED_PREFIX).partition("_")
        try:
            match kind:
                case "StringClaim":
                    claims[claim] = text
                case "NumberClaim":
                    claims[claim] = float(text)
                case "ListClaim":  # its first character stands between the elements
                    claims[claim] = text[1:].split(text[0]) if len(text) > 1 else []
                case "LifetimeSeconds":
                    lifetime_seconds = float(int(text))
                case "PrincipalClaimName" | "ScopeClaimName" | "Extension":
                    pass  # the broker finds the claim by its own options; extensions go beside the token
                case _:
                    raise ConfigError(f"sasl.jaas.config has an option {UNSECURED_PREFIX}* that Kafka does not know")
        except ValueError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"sasl.jaas.config: {UNSECURED_PREFIX}{kind} must be a number") from None
    principal = options.get(f"{UNSECURED_PREFIX}PrincipalClaimName", "").strip() or "sub"
    if {"iat", "exp"} & set(claims) or not claims.get(principal):
        raise ConfigError(
            f"sasl.jaas.config must have {UNSECURED_PREFIX}StringClaim_{principal}, the user's name, and no claims iat "
            "and exp"
        )
    claims |= {"iat": now, "exp": now + lifetime_seconds}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return f"{text}.", now + lifetime_seconds
