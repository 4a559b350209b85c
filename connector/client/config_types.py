"""The rows of a client's options, and the types of their values: each a function from text to value that raises
ValueError with what the text must be, to stand behind the option's name."""

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any, NamedTuple

from pylog.connector.client.secret import Secret

INT32_MAX = 0x7FFFFFFF
INT64_MAX = 0x7FFFFFFFFFFFFFFF


class Role(Enum):
    CONSUMER = "consumer"
    PRODUCER = "producer"
    SINK = "sink"  # a producer, and a driver that looks for its cluster first


class Option(NamedTuple):
    """A row: `parse` turns the text of an option into its value, or raises ValueError with what it must be."""

    name: str
    type: str
    default: Any
    roles: tuple[Role, ...]  # none: all of them
    parse: Callable[[str], Any]
    doc: str

    def is_of(self, role: Role | None) -> bool:
        return role is None or not self.roles or role in self.roles

    @property
    def is_secret(self) -> bool:
        """Then its text is in no message."""
        return self.type == PASSWORD


class ValueType(NamedTuple):
    name: str
    parse: Callable[[str], Any]


PASSWORD = "password"  # Kafka's name for the type of whatever is not to be shown


def option(kind: ValueType, default: Any, doc: str, roles: tuple[Role, ...] = ()) -> Any:
    """A field of a dataclass that is a row."""
    return field(default=default, metadata={"type": kind.name, "parse": kind.parse, "doc": doc, "roles": roles})


def integer(least: int, most: int = INT32_MAX) -> ValueType:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not least <= value <= most:
            raise ValueError(f"must be from {least} to {most}")
        return value

    return ValueType("int", parse)


MILLISECONDS = integer(0)


def choice(values: Mapping[str, Any]) -> ValueType:
    def parse(text: str) -> Any:
        try:
            return values[text.strip().lower()]
        except KeyError:
            raise ValueError(f"must be one of {', '.join(values)}") from None

    return ValueType("string", parse)


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise ValueError("must be true or false") from None


BOOLEAN = ValueType("boolean", _boolean)


def only(supported: str, type_name: str = "string") -> ValueType:
    """An option of which one value is supported; the others are known, and refused."""

    def parse(text: str) -> str:
        if text.strip().lower() != supported.lower():
            raise ValueError(f"is not supported yet: only {supported} is")
        return supported

    return ValueType(type_name, parse)


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


TEXT = ValueType("string", _text)
SECRET = ValueType(PASSWORD, lambda text: Secret(_text(text)))
