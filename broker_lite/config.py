"""The broker's configuration: a table of rows, under Kafka's own names.

Flags, `conf/broker.toml` and what a topic may override all come from this table. A name that is
not in it is refused: an option that would do nothing is worse than an error.
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pylog.storage.log import LogConfig


class ConfigError(Exception):
    """A setting that cannot be: it names the option and says what would be right."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    parse: Callable[[Any], Any]
    default: Any
    check: Callable[[Any], str | None]  # what is wrong with a value, or None
    doc: str


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError("must be true or false")


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    try:
        return int(value)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _between(low: int, high: int) -> Callable[[Any], str | None]:
    return lambda value: None if low <= value <= high else f"must be between {low} and {high}"


def _anything(value: Any) -> None:
    return None


_INT32_MAX = (1 << 31) - 1

BROKER_ROWS = (
    Row("node.id", _integer, 1, _between(0, _INT32_MAX), "The id under which this broker presents itself."),
    Row(
        "auto.create.topics.enable",
        _boolean,
        True,
        _anything,
        "Create a topic when a client asks for metadata of one that is not there.",
    ),
    Row("num.partitions", _integer, 1, _between(1, 100_000), "Partitions of a topic whose creator did not say."),
    Row("delete.topic.enable", _boolean, True, _anything, "Let clients delete topics."),
    Row(
        "message.max.bytes",
        _integer,
        1_048_588,
        _between(0, _INT32_MAX),
        "The largest record batch, as it arrives; a topic's max.message.bytes overrides it.",
    ),
    Row(
        "log.segment.bytes",
        _integer,
        1 << 30,
        _between(61, _INT32_MAX),
        "A segment file is closed, and the next begun, before it would grow past this.",
    ),
    Row(
        "log.index.interval.bytes",
        _integer,
        4096,
        _between(0, _INT32_MAX),
        "An index entry is written after so many bytes of log.",
    ),
    Row(
        "log.index.size.max.bytes",
        _integer,
        10 << 20,
        _between(24, _INT32_MAX),
        "The largest index file; a full one closes its segment.",
    ),
    Row(
        "offsets.topic.num.partitions",
        _integer,
        50,
        _between(1, 100_000),
        "Partitions of __consumer_offsets. Not to be changed once that topic is there.",
    ),
    Row(
        "offset.metadata.max.bytes",
        _integer,
        4096,
        _between(0, _INT32_MAX),
        "The longest text that a client may commit beside an offset.",
    ),
    Row("fetch.max.bytes", _integer, 55 << 20, _between(1024, _INT32_MAX), "The most that one fetch is answered with."),
    Row(
        "socket.request.max.bytes",
        _integer,
        100 << 20,
        _between(1, _INT32_MAX),
        "The largest request; a connection that announces more is closed.",
    ),
)

# What a topic may override, and the broker's row that holds its default.
TOPIC_ROWS = {
    "max.message.bytes": "message.max.bytes",
    "segment.bytes": "log.segment.bytes",
    "index.interval.bytes": "log.index.interval.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
}

_ROW = {row.name: row for row in BROKER_ROWS}


def _parse(row: Row, name: str, value: Any) -> Any:
    try:
        parsed = row.parse(value)
    except ValueError as error:
        raise ConfigError(f"{name}={value}: {error}") from None
    wrong = row.check(parsed)
    if wrong:
        raise ConfigError(f"{name}={value}: {wrong}")
    return parsed


def _unknown(name: str, known: Mapping[str, Any]) -> ConfigError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
    return ConfigError(f"{name} is not an option that this broker has{hint}")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The values in force for one topic: its own overrides over the broker's."""

    message_bytes_max: int
    log: LogConfig


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> "BrokerConfig":
        values = {}
        for name, value in given.items():
            if name not in _ROW:
                raise _unknown(name, _ROW)
            values[name] = _parse(_ROW[name], name, value)
        return cls(values)

    @classmethod
    def load(cls, file: Path | None, settings: list[str]) -> "BrokerConfig":
        """A TOML file of quoted names, and `key=value` settings that win over it."""
        given: dict[str, Any] = {}
        if file is not None:
            try:
                given.update(tomllib.loads(file.read_text()))
            except FileNotFoundError:
                raise ConfigError(f"{file}: there is no such file") from None
            except tomllib.TOMLDecodeError as error:
                raise ConfigError(f"{file}: {error}") from None
            tables = [name for name, value in given.items() if isinstance(value, dict)]
            if tables:
                raise ConfigError(
                    f'{file}: put names with dots in quotes, as in "num.partitions" ({tables[0]} is a table)'
                )
        for setting in settings:
            name, equals, value = setting.partition("=")
            if not equals:
                raise ConfigError(f"--set {setting}: must be key=value")
            given[name.strip()] = value.strip()
        return cls.parse(given)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name, _ROW[name].default)

    def topic(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """ConfigError names the override that is wrong."""
        values = {name: self[row] for name, row in TOPIC_ROWS.items()}
        for name, value in overrides.items():
            if name not in TOPIC_ROWS:
                raise _unknown(name, TOPIC_ROWS)
            if value is not None:
                values[name] = _parse(_ROW[TOPIC_ROWS[name]], name, value)
        log = LogConfig(
            segment_bytes=values["segment.bytes"],
            index_interval_bytes=values["index.interval.bytes"],
            index_bytes_max=values["segment.index.bytes"],
        )
        return TopicConfig(message_bytes_max=values["max.message.bytes"], log=log)
