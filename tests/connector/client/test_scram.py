"""SCRAM by the examples of its RFCs, and against a server of another hand."""

from collections.abc import Callable

import pytest

from pylog.connector.client.scram import ITERATIONS_MAX, ExchangeFailed, scram
from tests.support.sasl_servers import Refused, serve_scram


@pytest.mark.parametrize(
    ("mechanism", "nonce", "server_first", "proof", "server_final"),
    [
        pytest.param(
            "SCRAM-SHA-1",
            "fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            id="RFC 5802",
        ),
        pytest.param(
            "SCRAM-SHA-256",
            "rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            id="RFC 7677",
        ),
    ],
)
def test_the_examples_of_the_rfcs(mechanism: str, nonce: str, server_first: str, proof: str, server_final: str) -> None:
    exchange = scram(mechanism, "user", "pencil", nonce)
    assert next(exchange) == f"n,,n=user,r={nonce}".encode()
    both = server_first.split(",")[0]
    assert exchange.send(server_first.encode()) == f"c=biws,{both},p={proof}".encode()
    with pytest.raises(StopIteration):
        exchange.send(server_final.encode())


def run(mechanism: str, name: str, password: str, **server: object) -> None:
    client = scram(mechanism, name, password)
    serving = serve_scram(mechanism, {"alice": "s3cret", "a,b=c": "ª ŝ\u00a0", "": ""}, **server)  # type: ignore[arg-type]
    next(serving)
    message = next(client)
    while True:
        try:
            message = client.send(serving.send(message))
        except StopIteration:
            return


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("name", "password"),
    [
        pytest.param("alice", "s3cret", id="plain"),
        pytest.param("a,b=c", "ª ŝ\u00a0", id="signs that are escaped, and letters that SASLprep would change"),
    ],
)
def test_a_server_of_another_hand_is_convinced(mechanism: str, name: str, password: str) -> None:
    run(mechanism, name, password)


def test_a_wrong_password_convinces_nobody() -> None:
    with pytest.raises(Refused):
        run("SCRAM-SHA-256", "alice", "S3cret")


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    with pytest.raises(ExchangeFailed, match="has not proved"):
        run("SCRAM-SHA-512", "alice", "s3cret", lies=True)


@pytest.mark.parametrize(
    ("first", "says"),
    [
        pytest.param(lambda nonce: f"r={nonce}x,s=QSXCR+Q6,i=4095", "4095 iterations", id="too few iterations"),
        pytest.param(lambda nonce: f"r={nonce}x,s=QSXCR+Q6,i={ITERATIONS_MAX + 1}", "iterations", id="too many"),
        pytest.param(lambda nonce: f"r={nonce}x,s=QSXCR+Q6,i=-1", "malformed", id="less than none"),
        pytest.param(lambda nonce: "r=other,s=QSXCR+Q6,i=4096", "another client", id="another nonce"),
        pytest.param(lambda nonce: f"r={nonce},s=QSXCR+Q6,i=4096", "another client", id="a nonce of ours alone"),
        pytest.param(lambda nonce: f"r={nonce}x,s=*,i=4096", "malformed", id="a salt that is not base64"),
        pytest.param(lambda nonce: f"m=x,r={nonce}x,s=QSXCR+Q6,i=4096", "malformed", id="an extension that it demands"),
        pytest.param(lambda nonce: "e=other-error", "other-error", id="an error"),
        pytest.param(lambda nonce: "\udcff", "malformed", id="no text at all"),
        pytest.param(lambda nonce: "", "malformed", id="nothing"),
    ],
)
def test_a_first_answer_that_cannot_be_is_refused(first: Callable[[str], str], says: str) -> None:
    exchange = scram("SCRAM-SHA-256", "alice", "s3cret", "mine")
    next(exchange)
    with pytest.raises(ExchangeFailed, match=says):
        exchange.send(first("mine").encode("utf-8", "surrogateescape"))


def test_every_exchange_has_a_nonce_of_its_own() -> None:
    assert next(scram("SCRAM-SHA-256", "a", "b")) != next(scram("SCRAM-SHA-256", "a", "b"))
