"""`sasl.jaas.config` as Kafka reads it: a login module, a flag, options as name=value, a semicolon.

The words and quotes are those of Java's StreamTokenizer, with which Kafka reads them: what a notebook gives to the JVM
means the same here. Nothing of the text is repeated in an error: any part of it may belong to a password.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pylog.connector.client.secret import Secret

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_MODULES = (PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE)
_SHADED = "kafkashaded."  # what Databricks puts before Kafka's own names
_KERBEROS = "Krb5LoginModule"
_AMAZON = "software.amazon.msk.auth.iam."
_FLAGS = ("required", "requisite", "sufficient", "optional")

_WORD = re.compile(r"(?:[A-Za-z_$]|[^\x00-\x9f])(?:[A-Za-z0-9_$.\-]|[^\x00-\x9f])*")
_NUMBER = re.compile(r"-?[0-9.]+|-")
# One slash begins a comment, too, and where its line ends behind it, the next line is the comment.
_SKIPPED = re.compile(r"[\x00-\x20]+|/\*.*?(?:\*/|\Z)|//[^\r\n]*|/.?[^\r\n]*", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
# A quoted text ends with its quote, or without one where its line ends.
_QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\\r\n])*)(?:\1|(?=[\r\n])|\Z)""", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class JaasEntry:
    module: str
    pairs: tuple[tuple[str, Secret], ...]

    @property
    def options(self) -> Mapping[str, Secret]:
        return dict(self.pairs)

    def __repr__(self) -> str:
        return f"{self.module} [hidden]"


class _Token(NamedTuple):
    text: str | None  # of a word or a quoted text; Java has none for a number or a sign
    sign: str
    position: int


def parse_jaas(text: str) -> JaasEntry:
    """ValueError says what is wrong, and where."""
    tokens = _tokens(text)
    module = _module(next(tokens, None))
    flag = next(tokens, None)
    if flag is None or flag.text is None or flag.text.lower() not in _FLAGS:
        raise ValueError("must have a flag behind the login module, which is most often: required")
    options: dict[str, Secret] = {}
    for token in tokens:
        if token.sign == ";":
            break
        equals, value = next(tokens, None), next(tokens, None)
        if token.text is None or equals is None or equals.sign != "=" or value is None or value.text is None:
            raise ValueError(
                'must have options as name="value", with a semicolon behind the last: '
                f"what begins at character {token.position + 1} is none"
            )
        options[token.text] = Secret(value.text)
    else:
        raise ValueError("must end with a semicolon")
    if next(tokens, None) is not None:
        raise ValueError("must have one login module, and nothing behind its semicolon")
    return JaasEntry(module, tuple(sorted(options.items(), key=lambda pair: pair[0])))


def _module(token: _Token | None) -> str:
    name = (token.text or "").removeprefix(_SHADED) if token else ""
    if name in _MODULES:
        return name
    if name.endswith(_KERBEROS):
        raise ValueError("is for Kerberos (GSSAPI), which is not supported: use PLAIN, SCRAM or OAUTHBEARER")
    if name.startswith(_AMAZON):
        raise ValueError("is for AWS_MSK_IAM, which is not supported: use SCRAM, or OAUTHBEARER with a token provider")
    raise ValueError(f"must begin with a login module, one of {', '.join(_MODULES)}")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        if skipped := _SKIPPED.match(text, position):
            position = skipped.end()
        elif quoted := _QUOTED.match(text, position):
            yield _Token(_ESCAPE.sub(_unescaped, quoted[2]), "", position)
            position = quoted.end()
        elif word := _WORD.match(text, position):
            yield _Token(word[0], "", position)
            position = word.end()
        else:
            number = _NUMBER.match(text, position)
            yield _Token(None, "" if number else text[position], position)
            position = number.end() if number else position + 1


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _CONTROL.get(escaped, escaped)
