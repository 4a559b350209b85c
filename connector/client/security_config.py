"""The options of TLS and SASL, by Kafka's own names; what has no effect beside the others is refused, not ignored."""

import re
from collections.abc import Collection
from dataclasses import dataclass, fields

from pylog.connector.client.config_types import PASSWORD, SECRET, TEXT, ValueType, choice, option
from pylog.connector.client.errors import ConfigError
from pylog.connector.client.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, JaasEntry, parse_jaas
from pylog.connector.client.secret import Secret

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (PLAIN, *SCRAMS, OAUTHBEARER)
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
UNSECURED_PREFIX = "unsecuredLogin"  # how the options of Kafka's own, unsigned tokens begin

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TO_PEM = {
    "truststore": "keytool -list -rfc -keystore FILE > truststore.pem",
    "keystore": "keytool -importkeystore -srckeystore FILE -destkeystore keystore.p12 -deststoretype pkcs12 && "
    "openssl pkcs12 -in keystore.p12 -out keystore.pem",
}
_KAFKAS_TOKEN_CLIENTS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)


def how_to_convert(store: str) -> str:
    return f"only PEM is supported; make it so: {_TO_PEM[store]}"


def _store(store: str) -> ValueType:
    def parse(text: str) -> str:
        if text.strip().upper() != "PEM":
            raise ValueError(f"must be PEM: {how_to_convert(store)}")
        return "PEM"

    return ValueType("string", parse)


def _mechanism(text: str) -> str:
    name = text.strip().upper()
    if name == "GSSAPI":
        raise ValueError(f"cannot be GSSAPI (Kerberos), which is not supported: use {', '.join(MECHANISMS)}")
    if name == "AWS_MSK_IAM":
        raise ValueError(
            "cannot be AWS_MSK_IAM: use OAUTHBEARER with sasl.oauthbearer.token.provider, or SCRAM-SHA-512"
        )
    if name not in MECHANISMS:
        raise ValueError(f"must be one of {', '.join(MECHANISMS)}")
    return name


def _versions(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found or not set(found) <= set(TLS_VERSIONS):
        raise ValueError(f"must name {' and '.join(TLS_VERSIONS)}, or one of them: older ones are not safe")
    return tuple(version for version in TLS_VERSIONS if version in found)


def _suites(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _provider(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text.strip()):
        raise ValueError("must be module:function, a function in Python that returns a token")
    return text.strip()


def _endpoint(text: str) -> str:
    if not re.fullmatch(r"https://[^\s/?#@]+(/\S*)?", text.strip()):
        raise ValueError("must be an address that begins with https://, since a secret is sent there")
    return text.strip()


def _login_handler(text: str) -> str:
    name = text.strip().removeprefix("kafkashaded.")
    if name not in _KAFKAS_TOKEN_CLIENTS:
        raise ValueError(
            "cannot be a class of the JVM: set sasl.oauthbearer.token.provider=module:function, a function in Python "
            "that returns a token"
        )
    return name


@dataclass(frozen=True)
class SecurityConfig:
    """An attribute per option, its dots as underscores."""

    security_protocol: str = option(
        choice({name.lower(): name for name in _PROTOCOLS}),
        "PLAINTEXT",
        "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL: whether there is TLS, and whether the client says who it is",
    )
    ssl_truststore_type: str = option(_store("truststore"), "PEM", "PEM; a JKS or PKCS12 file must be made one")
    ssl_truststore_location: str = option(
        TEXT, "", "a file with the certificates of CAs that are believed; without one, those of the system"
    )
    ssl_truststore_certificates: Secret | None = option(SECRET, None, "those certificates themselves, as PEM")
    ssl_keystore_type: str = option(_store("keystore"), "PEM", "PEM; a JKS or PKCS12 file must be made one")
    ssl_keystore_location: str = option(
        TEXT, "", "a file with the client's private key and certificates, where the broker asks for them"
    )
    ssl_keystore_key: Secret | None = option(SECRET, None, "the private key itself, as PEM")
    ssl_keystore_certificate_chain: Secret | None = option(
        SECRET, None, "the client's certificate itself, as PEM, and those that vouch for it"
    )
    ssl_key_password: Secret | None = option(SECRET, None, "the password of the private key, if it has one")
    ssl_endpoint_identification_algorithm: str = option(
        choice({"https": "https", "": ""}),
        "https",
        "https: a broker's certificate must be for the name it is called by; empty: any that a CA has signed will do",
    )
    ssl_enabled_protocols: tuple[str, ...] = option(
        ValueType("list", _versions), TLS_VERSIONS, "the versions of TLS: TLSv1.2, TLSv1.3"
    )
    ssl_protocol: str = option(
        choice({"tlsv1.3": "TLSv1.3", "tls": "TLSv1.3", "tlsv1.2": "TLSv1.2"}), "TLSv1.3", "the newest that is used"
    )
    ssl_cipher_suites: tuple[str, ...] = option(
        ValueType("list", _suites),
        (),
        "the cipher suites that may be used, by their standard names; if not set, all good ones",
    )
    sasl_mechanism: str = option(
        ValueType("string", _mechanism), "", f"how the client says who it is: {', '.join(MECHANISMS)}"
    )
    sasl_jaas_config: JaasEntry | None = option(
        ValueType(PASSWORD, parse_jaas), None, "a login module with its options, as Kafka's clients have it"
    )
    sasl_oauthbearer_token_provider: str = option(
        ValueType("string", _provider),
        "",
        "module:function in Python; called with the options of sasl.jaas.config (a dict), it returns a token or "
        "(token, its end in seconds since 1970). Not an option of Kafka's",
    )
    sasl_oauthbearer_token_endpoint_url: str = option(
        ValueType("string", _endpoint),
        "",
        "where a token is to be had for the clientId and clientSecret (and scope) of sasl.jaas.config",
    )
    sasl_login_callback_handler_class: str = option(
        ValueType("class", _login_handler), "", "Kafka's own class for sasl.oauthbearer.token.endpoint.url, no other"
    )

    @property
    def security(self) -> "SecurityConfig":
        """Only these options, of whatever holds more: what is made from them serves all that have the same."""
        return SecurityConfig(**{row.name: getattr(self, row.name) for row in fields(SecurityConfig)})

    @property
    def has_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")


def check_together(config: SecurityConfig, given: Collection[str]) -> None:
    """ConfigError, which begins with the name of an option, where the options given do not go together."""
    _check_effects(config, given)
    if config.has_tls:
        _check_stores(config, given)
    if config.has_sasl:
        _check_login(config)


def _check_effects(config: SecurityConfig, given: Collection[str]) -> None:
    for name in sorted(given):
        for prefix, counts in (("ssl.", config.has_tls), ("sasl.", config.has_sasl)):
            if name.startswith(prefix) and not counts:
                others = [protocol for protocol in _PROTOCOLS if prefix[:-1].upper() in protocol.split("_")]
                raise ConfigError(
                    f"{name} has no effect with security.protocol={config.security_protocol}: set that to "
                    f"{' or '.join(others)}"
                )
        if name.startswith("sasl.oauthbearer.") and config.sasl_mechanism != OAUTHBEARER:
            raise ConfigError(
                f"{name} has no effect with sasl.mechanism={config.sasl_mechanism}, only with OAUTHBEARER"
            )


def _check_stores(config: SecurityConfig, given: Collection[str]) -> None:
    if config.ssl_truststore_location and config.ssl_truststore_certificates:
        raise ConfigError("ssl.truststore.location and ssl.truststore.certificates are both given: one must do")
    key, chain = bool(config.ssl_keystore_key), bool(config.ssl_keystore_certificate_chain)
    if config.ssl_keystore_location and (key or chain):
        raise ConfigError(
            "ssl.keystore.location and ssl.keystore.key (or .certificate.chain) are both given: one must do"
        )
    if key != chain:
        raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain are needed both, or neither")
    if "ssl.key.password" in given and not (config.ssl_keystore_location or key):
        raise ConfigError("ssl.key.password has no effect without ssl.keystore.location or ssl.keystore.key")


def _check_login(config: SecurityConfig) -> None:
    mechanism, jaas = config.sasl_mechanism, config.sasl_jaas_config
    if not mechanism:
        raise ConfigError(
            f"sasl.mechanism is required with security.protocol={config.security_protocol}: {', '.join(MECHANISMS)} "
            "(Kafka's default, GSSAPI, is not supported)"
        )
    if mechanism == OAUTHBEARER:
        _check_oauth(config)
        return
    if jaas is None:
        module = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
        raise ConfigError(
            f'sasl.jaas.config is required with sasl.mechanism={mechanism}: {module} required username="..." '
            'password="...";'
        )
    if jaas.module == OAUTH_MODULE:  # of the two others either will do, as with Kafka's own client
        raise ConfigError(f"sasl.jaas.config has the login module of OAUTHBEARER, and sasl.mechanism is {mechanism}")
    if set(jaas.options) != {"username", "password"}:
        raise ConfigError("sasl.jaas.config must have the options username and password, and no others")


def _check_oauth(config: SecurityConfig) -> None:
    jaas = config.sasl_jaas_config
    names = set(jaas.options) if jaas else set()
    if jaas is not None and jaas.module != OAUTH_MODULE:
        raise ConfigError(f"sasl.jaas.config must have the login module of OAUTHBEARER: {OAUTH_MODULE}")
    if config.sasl_oauthbearer_token_provider:
        if config.sasl_oauthbearer_token_endpoint_url or config.sasl_login_callback_handler_class:
            raise ConfigError("sasl.oauthbearer.token.provider and another source of tokens are given: one must do")
    elif config.sasl_oauthbearer_token_endpoint_url:
        if not {"clientId", "clientSecret"} <= names:
            raise ConfigError("sasl.jaas.config must have clientId and clientSecret, for the token endpoint")
        if any(not name.startswith(("ssl.", "extension_")) for name in names - {"clientId", "clientSecret", "scope"}):
            raise ConfigError(
                "sasl.jaas.config may have clientId, clientSecret, scope, extension_* and ssl.* for the token "
                "endpoint, and no other options"
            )
    elif config.sasl_login_callback_handler_class:
        raise ConfigError("sasl.oauthbearer.token.endpoint.url is required with sasl.login.callback.handler.class")
    elif not names or any(not name.startswith(UNSECURED_PREFIX) for name in names):
        raise ConfigError(
            "sasl.oauthbearer.token.provider (module:function) or sasl.oauthbearer.token.endpoint.url is required with "
            f"sasl.mechanism={OAUTHBEARER}, or options {UNSECURED_PREFIX}* alone in sasl.jaas.config"
        )
