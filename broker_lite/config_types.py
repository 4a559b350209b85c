"""What an option is: its row, its type, how a value is read, checked and shown.

Types are Kafka's, and so are the texts that they read: a client gets its value back as it would from Kafka.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

Check = Callable[[Any], str | None]  # what is wrong with a value, or None


class Kind(IntEnum):
    """By the code that DescribeConfigs has for it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    kind: Kind
    default: Any  # None: not set
    check: Check
    doc: str
    dynamic: bool = False  # may be changed while the broker runs

    def parse(self, value: Any) -> Any:
        """ValueError says what the value must be. It is not checked here."""
        return _PARSE[self.kind](value)


def show(value: Any) -> str | None:
    """As Kafka writes it: the text of a value that was parsed."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _boolean(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    raise ValueError("must be true or false")


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


def _whole_number(bits_max: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        text = str(value).strip()
        if isinstance(value, bool | float) or not _WHOLE_NUMBER.fullmatch(text):
            raise ValueError("must be a whole number")
        number = int(text)
        if not -bits_max - 1 <= number <= bits_max:
            raise ValueError(f"must be between {-bits_max - 1} and {bits_max}")
        return number

    return parse


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _number(value: Any) -> float:
    text = str(value).strip()
    if isinstance(value, bool) or not _NUMBER.fullmatch(text):
        raise ValueError("must be a number")
    return float(text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return value.strip()


def _words(value: Any) -> tuple[str, ...]:
    """`a, b` or, in TOML, `["a", "b"]`; the same word twice counts once."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError("must be words, separated by commas")
    words = [word.strip() for word in words]
    return () if words == [""] else tuple(dict.fromkeys(words))


_PARSE: dict[Kind, Callable[[Any], Any]] = {
    Kind.BOOLEAN: _boolean,
    Kind.STRING: _text,
    Kind.INT: _whole_number(INT32_MAX),
    Kind.SHORT: _whole_number(INT16_MAX),
    Kind.LONG: _whole_number(INT64_MAX),
    Kind.DOUBLE: _number,
    Kind.LIST: _words,
}

# Checks


def anything(value: Any) -> None:
    return None


def between(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must be between {low} and {high}"


def at_least(low: int) -> Check:
    return lambda value: None if value >= low else f"must be at least {low}"


def one_of(*words: str) -> Check:
    return lambda value: None if value in words else f"must be {', '.join(words[:-1])} or {words[-1]}"


def only(value_here: Any, why: str) -> Check:
    """Of an option that Kafka has and that can have but one value here."""
    shown = show(value_here) or "empty"
    return lambda value: None if value == value_here else f"must be {shown}: {why}"
