"""The broker's side of SASL, for tests: generators that take what a client sends and yield what it is answered.

Written by the RFCs and not by our client, so that each can be the other's judge."""

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Collection, Generator, Mapping

Serving = Generator[bytes, bytes, None]


class Refused(Exception):
    """What a broker says as it lets a client not in."""


def serve_plain(users: Mapping[str, str]) -> Serving:
    _, name, password = (yield b"").decode().split("\0")
    if users.get(name) != password:
        raise Refused("Authentication failed: Invalid username or password")
    yield b""


def serve_scram(mechanism: str, users: Mapping[str, str], iterations: int = 4096, lies: bool = False) -> Serving:
    """`lies`: it does not know the password, and says that all is well."""
    algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    first = (yield b"").decode()
    assert first.startswith("n,,n=")
    bare = first[3:]
    saslname, nonce = bare.split(",")
    password = users.get(saslname[2:].replace("=2C", ",").replace("=3D", "="))
    if password is None:
        raise Refused("invalid credentials")
    salt = os.urandom(12)
    both = nonce[2:] + "and-mine"
    server_first = f"r={both},s={base64.b64encode(salt).decode()},i={iterations}"
    final = (yield server_first.encode()).decode()
    without_proof, _, proof = final.rpartition(",p=")
    assert without_proof == f"c=biws,r={both}"
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    message = f"{bare},{server_first},{without_proof}".encode()
    stored = hashlib.new(algorithm, hmac.digest(salted, b"Client Key", algorithm)).digest()
    signature = hmac.digest(stored, message, algorithm)
    key = (int.from_bytes(signature) ^ int.from_bytes(base64.b64decode(proof))).to_bytes(len(signature))
    if hashlib.new(algorithm, key).digest() != stored and not lies:
        raise Refused("invalid credentials")
    server_signature = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    yield b"v=" + base64.b64encode(bytes(32) if lies else server_signature)


def serve_oauthbearer(tokens: Collection[str], seen: list[str]) -> Serving:
    """`seen` gets all that clients send."""
    first = (yield b"").decode()
    seen.append(first)
    head, auth, *_ = first.split("\x01")
    if head != "n,," or auth.removeprefix("auth=Bearer ") not in tokens:
        yield json.dumps({"status": "invalid_token"}).encode()
        raise Refused("the token is no good")
    yield b""
