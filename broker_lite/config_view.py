"""The configuration as clients see it: each option with its value, and where that comes from.

Synonyms are in the order in which they win; the first is the value in force. As with Kafka, an option that is not set
under its own name has none, though another option may stand in for it (log.retention.hours for log.retention.ms).
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.config_rows import BROKER_ROWS, ROW
from pylog.broker_lite.config_types import Row, show
from pylog.broker_lite.log_rows import INSTEAD
from pylog.broker_lite.topic_rows import BROKER_NAME, TOPIC_ROW


class Source(IntEnum):
    """By Kafka's codes."""

    TOPIC = 1  # DYNAMIC_TOPIC_CONFIG
    BROKER = 2  # DYNAMIC_BROKER_CONFIG
    ALL_BROKERS = 3  # DYNAMIC_DEFAULT_BROKER_CONFIG
    STATIC = 4  # STATIC_BROKER_CONFIG
    DEFAULT = 5  # DEFAULT_CONFIG
    LOGGER = 6  # DYNAMIC_BROKER_LOGGER_CONFIG
    GROUP = 8  # DYNAMIC_GROUP_CONFIG


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Option(NamedTuple):
    row: Row
    value: str | None
    synonyms: list[Synonym]
    read_only: bool

    @property
    def source(self) -> Source:
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


def topic_options(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[Option]:
    for name, row in TOPIC_ROW.items():
        broker_name = BROKER_NAME.get(name)
        value = row.default if broker_name is None else config[broker_name]
        synonyms = [] if broker_name is None else _synonyms(config, broker_name)
        if name in overrides:
            value = row.parse(overrides[name])
            synonyms = [Synonym(name, show(value), Source.TOPIC), *synonyms]
        yield Option(row, show(value), synonyms, read_only=False)


def broker_options(config: BrokerConfig) -> Iterator[Option]:
    for row in BROKER_ROWS:
        synonyms = _synonyms(config, row.name)
        yield Option(row, synonyms[0].value if synonyms else None, synonyms, read_only=not row.dynamic)


def options_of_all_brokers(config: BrokerConfig) -> Iterator[Option]:
    """Only those that were changed."""
    for name, value in config.cluster.items():
        shown = show(value)
        yield Option(ROW[name], shown, [Synonym(name, shown, Source.ALL_BROKERS)], read_only=False)


def group_options(overrides: Mapping[str, str]) -> Iterator[Option]:
    from pylog.broker_lite.group_rows import GROUP_ROWS, broker_name  # here: few ask for them

    for row in GROUP_ROWS:
        synonyms = [Synonym(broker_name(row.name), show(row.default), Source.DEFAULT)]
        if row.name in overrides:
            synonyms.insert(0, Synonym(row.name, overrides[row.name], Source.GROUP))
        yield Option(row, synonyms[0].value, synonyms, read_only=False)


def _synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    names = (name, *(other for other, _ in INSTEAD.get(name, ())))
    found = [
        Synonym(one, show(given[one]), source)
        for source, given in _given(config)
        for one in names
        if given.get(one) is not None
    ]
    while found and found[0].name != name:
        del found[0]
    return found


_DEFAULTS = {row.name: row.default for row in BROKER_ROWS}


def _given(config: BrokerConfig) -> Iterator[tuple[Source, Mapping[str, Any]]]:
    yield Source.BROKER, config.node
    yield Source.ALL_BROKERS, config.cluster
    yield Source.STATIC, config.values
    yield Source.DEFAULT, _DEFAULTS
