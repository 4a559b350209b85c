"""sasl.jaas.config is read as Kafka reads it (tests/kafka holds the same rows against Kafka's own parser)."""

import pytest

from pylog.connector.client.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from tests.support.jaas_rows import READ, REFUSED


@pytest.mark.parametrize(("text", "options"), [pytest.param(text, options, id=name) for name, text, options in READ])
def test_options_are_read(text: str, options: dict[str, str]) -> None:
    found = parse_jaas(f"{PLAIN_MODULE} {text}")
    assert {name: secret.reveal() for name, secret in found.options.items()} == options


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in REFUSED])
def test_what_cannot_be_read_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|not supported") as refused:
        parse_jaas(text)
    assert "s3cret" not in str(refused.value)


def test_the_module_may_have_the_name_that_databricks_gives_it() -> None:
    assert parse_jaas(f"kafkashaded.{SCRAM_MODULE} required;").module == SCRAM_MODULE


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("com.sun.security.auth.module.Krb5LoginModule", "Kerberos"),
        ("software.amazon.msk.auth.iam.IAMLoginModule", "AWS_MSK_IAM"),
        ("org.example.OwnLoginModule", "must begin with a login module, one of org.apache.kafka"),
    ],
)
def test_modules_that_are_not_there_are_refused_by_name(module: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_jaas(f'{module} required useKeyTab="true";')


def test_equal_texts_are_equal_and_show_nothing() -> None:
    one, other = (parse_jaas(f"{PLAIN_MODULE} required {text};") for text in ('a="x" b="y"', "b='y' a='x'"))
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == f"{PLAIN_MODULE} [hidden]"
