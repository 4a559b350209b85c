"""TLS as the options of `ssl.*` say it, and what its failures mean in words that help.

Keys and certificates are PEM, in files or in the options themselves, and need not keep to lines: Kafka's reader does
not ask for that either.
"""

import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO

from pylog.connector.client.config import Address
from pylog.connector.client.errors import BrokerUnavailable, ClientError, ConfigError, ConnectionLost, TlsFailed
from pylog.connector.client.secret import Secret
from pylog.connector.client.security_config import SecurityConfig, how_to_convert

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_PEM_HEADER = re.compile(r"\s*(?:[\w-]+: ?[^\r\n]*[\r\n]+)+")
_PEM_LINE_CHARS = 64
_JKS_MAGIC, _DER_MAGIC = b"\xfe\xed\xfe\xed", b"\x30"
_TLS_1_3_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

# OpenSSL's codes of what is wrong with a certificate (X509_V_ERR_*).
_NOT_YET_VALID, _EXPIRED = 9, 10
_WRONG_NAMES = (62, 64)  # of a host; of an IP address
_UNKNOWN_CA = (2, 18, 19, 20, 21)  # no issuer, signed by itself, a chain that leads nowhere


def secured(sock: socket.socket, address: Address, config: SecurityConfig) -> ssl.SSLSocket:
    """The socket after its handshake, which has the socket's timeout; TlsFailed, or an error that may pass."""
    context = tls_context(config)
    try:
        return context.wrap_socket(sock, server_hostname=address.host.partition("%")[0])
    except TimeoutError:
        raise BrokerUnavailable(
            [(str(address), "no TLS handshake within socket.connection.setup.timeout.ms: is it a listener with TLS?")]
        ) from None
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
        cause = "it was closed within the TLS handshake, as by a listener without TLS (is security.protocol right?)"
        raise ConnectionLost(str(address), cause) from None
    except ssl.SSLError as error:
        raise tls_failure(error, address, config) from None
    except OSError as error:
        raise ConnectionLost(str(address), str(error)) from None


def tls_failure(error: ssl.SSLError, address: Address, config: SecurityConfig) -> ClientError:
    """What an error of TLS means, in a handshake or later."""
    return TlsFailed(str(address), _cause(error, address, config))


def _cause(error: ssl.SSLError, address: Address, config: SecurityConfig) -> str:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _wrong_certificate(error, address, config)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return "what answers there does not speak TLS: is it a listener with TLS (is security.protocol right?)"
    if "PROTOCOL_VERSION" in reason or reason in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"):
        return f"it speaks none of the versions of TLS that are on: ssl.enabled.protocols, {_newest(config)} at most"
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason or "ACCESS_DENIED" in reason):
        if config.ssl_keystore_location or config.ssl_keystore_key:
            return (
                "it refuses the certificate of ssl.keystore.*: has a CA signed it that the broker believes, and is it "
                f"valid today? ({reason})"
            )
        return f"it asks for a certificate of the client's: ssl.keystore.location would have it ({reason})"
    if "HANDSHAKE_FAILURE" in reason:
        return "both sides agree on no cipher suite, or it asks for a certificate of the client's (ssl.keystore.*)"
    return str(error)


def _wrong_certificate(error: ssl.SSLCertVerificationError, address: Address, config: SecurityConfig) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired: it needs a new one (or the clock of this machine is wrong)"
    if error.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet: is the clock of this machine right?"
    if error.verify_code in _WRONG_NAMES:
        return (
            f"its certificate is not for {address.host} ({error.verify_message}). Use the name that is in it, in "
            "bootstrap.servers and in the broker's advertised.listeners; ssl.endpoint.identification.algorithm with an "
            "empty value would do without that check"
        )
    if error.verify_code not in _UNKNOWN_CA:
        return f"its certificate is refused: {error.verify_message}"
    believed = "that ssl.truststore.* names"
    if not (config.ssl_truststore_location or config.ssl_truststore_certificates):
        believed = "of this system (there is no ssl.truststore.location)"
    return f"its certificate is signed by none of the CAs {believed}: {error.verify_message}"


# The context


def tls_context(config: SecurityConfig) -> ssl.SSLContext:
    """Made once, and again when a file has changed; ConfigError where keys or certificates cannot be used."""
    files = (config.ssl_truststore_location, config.ssl_keystore_location)
    return _made(config.security, tuple(_changed_at(file) for file in files if file))


def _changed_at(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0  # reading it will tell more


@lru_cache(maxsize=16)
def _made(config: SecurityConfig, _changed: tuple[int, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which asks for a certificate, and for the right name in it
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    _limit(context, config)
    trusted = _store("truststore", config.ssl_truststore_location, config.ssl_truststore_certificates)
    if trusted is None:
        context.load_default_certs()
    else:
        _trust(context, trusted)
    _identify(context, config)
    return context


def _newest(config: SecurityConfig) -> str:
    suites = config.ssl_cipher_suites
    before_1_3 = config.ssl_protocol == "TLSv1.2" or (suites and not set(suites) & set(_TLS_1_3_SUITES))
    return "TLSv1.2" if before_1_3 else config.ssl_enabled_protocols[-1]


def _limit(context: ssl.SSLContext, config: SecurityConfig) -> None:
    newest, oldest = _newest(config), config.ssl_enabled_protocols[0]
    if oldest > newest:
        raise ConfigError(f"ssl.enabled.protocols is {oldest}, but ssl.protocol or ssl.cipher.suites ask for {newest}")
    named = set(config.ssl_cipher_suites) & set(_TLS_1_3_SUITES)
    if named and len(named) < len(_TLS_1_3_SUITES) and newest == "TLSv1.3":
        raise ConfigError(
            "ssl.cipher.suites must name all suites of TLSv1.3 or none, Python cannot choose among them: "
            + ", ".join(_TLS_1_3_SUITES)
        )
    context.minimum_version, context.maximum_version = _VERSIONS[oldest], _VERSIONS[newest]
    older = [suite for suite in config.ssl_cipher_suites if suite not in _TLS_1_3_SUITES]
    if older:
        try:
            context.set_ciphers(":".join(map(openssl_name, older)))
        except ssl.SSLError:
            raise ConfigError("ssl.cipher.suites names none that this system's OpenSSL knows") from None
    elif named:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def openssl_name(suite: str) -> str:
    """OpenSSL takes only its own names: ECDHE-RSA-AES128-GCM-SHA256, not TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"(AES|CAMELLIA|ARIA)_(\d+)", r"\1\2", cipher).replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("CCM_8", "CCM8")
    exchange = "" if exchange == "RSA" else exchange + "_"
    return (exchange + cipher).replace("_", "-") if cipher else suite


# Keys and certificates


def _store(store: str, file: str, given: Secret | None) -> str | None:
    """The PEM of a store, from its file or from the option that holds it; None where there is none."""
    if not file:
        return None if given is None else given.reveal()
    name = f"ssl.{store}.location"
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} cannot be read on this machine: {error}") from None
    if content.startswith((_JKS_MAGIC, _DER_MAGIC)):
        raise ConfigError(f"{name} is a JKS or PKCS12 file: {how_to_convert(store)}")
    return content.decode("utf-8", "replace")


def _blocks(pem: str, kinds: str) -> list[str]:
    """The blocks of these kinds, in lines as OpenSSL wants them."""
    return [_in_lines(kind, body) for kind, body in _PEM.findall(pem) if re.fullmatch(kinds, kind)]


def _in_lines(kind: str, body: str) -> str:
    header = _PEM_HEADER.match(body)  # of a key that is encrypted in the old manner
    base64 = "".join(body[header.end() if header else 0 :].split())
    lines = [base64[at : at + _PEM_LINE_CHARS] for at in range(0, len(base64), _PEM_LINE_CHARS)]
    before = [header[0].strip() + "\n"] if header else []
    return "\n".join([f"-----BEGIN {kind}-----", *before, *lines, f"-----END {kind}-----", ""])


def _trust(context: ssl.SSLContext, pem: str) -> None:
    certificates = _blocks(pem, "(?:TRUSTED |X509 )?CERTIFICATE")
    try:
        context.load_verify_locations(cadata="".join(certificates))
    except (ssl.SSLError, ValueError):
        raise ConfigError("ssl.truststore.* holds no certificates that can be read: it must be PEM") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as for Java, what is in it need not be a root to count


def _identify(context: ssl.SSLContext, config: SecurityConfig) -> None:
    held = _store("keystore", config.ssl_keystore_location, config.ssl_keystore_key)
    if held is None:
        return
    chain = config.ssl_keystore_certificate_chain
    keys, certificates = _blocks(held, ".*PRIVATE KEY"), _blocks(chain.reveal() if chain else held, "CERTIFICATE")
    if not keys or not certificates:
        raise ConfigError("ssl.keystore.* must hold a private key and its certificate, both as PEM")

    def password() -> str:
        if config.ssl_key_password is None:  # else OpenSSL would ask whoever sits at the terminal
            raise ConfigError("ssl.key.password is required: the private key is encrypted")
        return config.ssl_key_password.reveal()

    with _as_file("".join([keys[0], *certificates])) as file:
        try:
            context.load_cert_chain(file, password=password)
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise ConfigError(
                f"ssl.keystore.* cannot be used ({reason}): do key and certificate belong together, with the key's own "
                "certificate first, and is ssl.key.password right?"
            ) from None


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """OpenSSL takes keys from files only: where the system can, from one that is on no disk."""
    file: IO[bytes]
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pem"), "wb") as file:
            file.write(pem.encode())
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem.encode())
            file.flush()
            yield file.name
