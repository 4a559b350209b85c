"""SCRAM (RFC 5802, RFC 7677), the client's side: neither side learns the password, and each proves that it knows it.

Passwords go in as they are, in UTF-8, as with Kafka's own clients and brokers: SASLprep, which the RFC asks for, would
keep out everybody whose password it changes. (Of names Kafka takes those in ASCII only.)
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Generator

ITERATIONS_MIN = 4096  # as Kafka's client: fewer would make it cheap to guess the password
ITERATIONS_MAX = 1_000_000  # a second or so of this machine; Kafka's own most is 16384
_FIRST = re.compile(r"r=([^,]+),s=([^,]+),i=(\d{1,9})(?:,.*)?")
_FINAL = re.compile(r"v=([^,]+)(?:,.*)?")
_FAILED = re.compile(r"e=([^,]+)(?:,.*)?")


class ExchangeFailed(Exception):
    """The broker's side of the exchange is not as it must be; the message says in what."""


def scram(mechanism: str, name: str, password: str, nonce: str | None = None) -> Generator[bytes, bytes, None]:
    """Yields what the client sends, takes what the server answers, and ends when the server has proved itself."""
    hash_name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()

    def mac(key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, hash_name)

    own_nonce = nonce or secrets.token_urlsafe(24)
    first_bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={own_nonce}"
    server_first = _text((yield f"n,,{first_bare}".encode()))

    server_nonce, salt, iterations = _read_first(server_first, own_nonce)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = mac(salted, b"Client Key")
    final_bare = f"c=biws,r={server_nonce}"
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    signature = mac(hashlib.new(hash_name, client_key).digest(), signed)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server_final = _text((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()))

    if failed := _FAILED.fullmatch(server_final):
        raise ExchangeFailed(f"the broker says {failed[1]}")
    found = _FINAL.fullmatch(server_final)
    if not found or not hmac.compare_digest(_decoded(found[1]), mac(mac(salted, b"Server Key"), signed)):
        raise ExchangeFailed("the broker has not proved that it knows the password: it is not what it says it is")


def _read_first(message: str, own_nonce: str) -> tuple[str, bytes, int]:
    """(nonce of both, salt, iterations)."""
    if failed := _FAILED.fullmatch(message):
        raise ExchangeFailed(f"the broker says {failed[1]}")
    found = _FIRST.fullmatch(message)
    if not found:
        raise ExchangeFailed("the broker's first message is malformed")
    if not found[1].startswith(own_nonce) or found[1] == own_nonce:
        raise ExchangeFailed("the broker answers another client's message")
    iterations = int(found[3])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ExchangeFailed(
            f"the broker asks for {iterations} iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are done"
        )
    return found[1], _decoded(found[2]), iterations


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ExchangeFailed("the broker's message is malformed") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ExchangeFailed("the broker's message is malformed") from None
