"""The broker's configuration: what was given, over the defaults of the rows.

A name that is not in the table is refused: an option that would do nothing is worse than an error. Every error is a
ConfigError that names the option.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pylog.broker_lite.config_rows import ROW
from pylog.broker_lite.config_types import Row
from pylog.broker_lite.log_rows import COMPACT, DELETE, GZIP, INSTEAD, LOG_APPEND_TIME, LZ4, ZSTD
from pylog.broker_lite.topic_rows import BROKER_NAME, TOPIC_ROW
from pylog.storage.log_config import LogConfig


class ConfigError(Exception):
    """A setting that cannot be: it names the option and says what would be right."""


def _parse(row: Row, value: Any) -> Any:
    try:
        parsed = row.parse(value)
    except ValueError as error:
        raise ConfigError(f"{row.name}={value}: {error}") from None
    wrong = row.check(parsed)
    if wrong:
        raise ConfigError(f"{row.name}={value}: {wrong}")
    return parsed


def _unknown(name: str, known: Mapping[str, Any]) -> ConfigError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
    return ConfigError(f"Unknown config name: {name}{hint}")  # Kafka's word, which clients' tests look for


def _take_other_names(values: dict[str, Any]) -> None:
    """What was said under an older name, as Kafka takes it."""
    if "broker.id" in values:
        node_id = _parse(ROW["node.id"], values["broker.id"])
        if values.setdefault("node.id", node_id) != node_id:
            raise ConfigError(f"broker.id={node_id}: must be the same as node.id={values['node.id']}, or not be set")
    if "log.dir" in values:
        values.setdefault("log.dirs", values["log.dir"])


def _parse_changes(given: Mapping[str, str]) -> dict[str, Any]:
    for name in given:
        if name not in ROW:
            raise _unknown(name, ROW)
        if not ROW[name].dynamic:
            raise ConfigError(f"{name} cannot be changed while the broker runs; set it and start again")
    return {name: _parse(ROW[name], value) for name, value in given.items()}


def check_group(given: Mapping[str, str]) -> None:
    """ConfigError: a group cannot have these options."""
    from pylog.broker_lite.group_rows import GROUP_ROW  # here: few groups have any

    for name, value in given.items():
        if name not in GROUP_ROW:
            raise _unknown(name, GROUP_ROW)
        _parse(GROUP_ROW[name], value)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The values in force for one topic: its own overrides over the broker's."""

    message_bytes_max: int
    compression_type: str  # a codec's name, or `producer`: as it comes
    compression_level: int | None  # of that codec; None: it has none
    min_insync_replicas: int
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    log: LogConfig


_LEVELS = {codec: f"compression.{codec}.level" for codec in (GZIP, LZ4, ZSTD)}


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """`node` wins over `cluster`, that over `values`."""

    values: Mapping[str, Any] = field(default_factory=dict)  # given at the start
    cluster: Mapping[str, Any] = field(default_factory=dict)  # changed since, for all brokers
    node: Mapping[str, Any] = field(default_factory=dict)  # changed since, for this one

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> "BrokerConfig":
        values = {}
        for name, value in given.items():
            if name not in ROW:
                raise _unknown(name, ROW)
            values[name] = _parse(ROW[name], value)
        _take_other_names(values)
        config = cls(values)
        if 0 <= config["queued.max.request.bytes"] < config["socket.request.max.bytes"]:
            raise ConfigError(
                f"queued.max.request.bytes={config['queued.max.request.bytes']}: "
                f"must be -1 or at least socket.request.max.bytes={config['socket.request.max.bytes']}"
            )
        config.topic({})  # what does not go together is told now, not when a topic is made
        return config

    @classmethod
    def load(cls, file: Path | None, settings: list[str], data: Sequence[Path] = ()) -> "BrokerConfig":
        """A TOML file of quoted names, `key=value` settings that win over it, and the data directories if given."""
        given: dict[str, Any] = {}
        if file is not None:
            import tomllib  # here: most brokers start without a file

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
        if data:
            given["log.dirs"] = [str(directory) for directory in data]
        return cls.parse(given)

    def with_facts(self, facts: Mapping[str, Any]) -> "BrokerConfig":
        """What is known once the broker runs, in the place of what was given."""
        return BrokerConfig({**self.values, **facts}, self.cluster, self.node)

    def changed(self, *, cluster: Mapping[str, str], node: Mapping[str, str]) -> "BrokerConfig":
        """What was given at the start, and these instead of what was changed before. ConfigError: it cannot be."""
        changed = BrokerConfig(self.values, _parse_changes(cluster), _parse_changes(node))
        changed.topic({})
        return changed

    def __getitem__(self, name: str) -> Any:
        value = self._given_or_default(name)
        for other, unit_ms in INSTEAD.get(name, ()):
            if value is None:
                count = self._given_or_default(other)
                value = count if count is None or count < 0 else count * unit_ms
        return value

    def _given_or_default(self, name: str) -> Any:
        for given in (self.node, self.cluster, self.values):
            if name in given:
                return given[name]
        return ROW[name].default

    @property
    def directories(self) -> list[Path]:
        if self["log.dirs"] is None:
            raise ConfigError("log.dirs is not set: say where the logs are to be kept, with --data DIR or log.dirs")
        directories = [Path(directory) for directory in self["log.dirs"]]
        if len({directory.resolve() for directory in directories}) < len(directories):
            raise ConfigError(f"log.dirs={','.join(self['log.dirs'])}: the same directory has two names here")
        return directories

    def topic(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """ConfigError names the override that is wrong."""
        values = {
            name: self[BROKER_NAME[name]] if name in BROKER_NAME else row.default for name, row in TOPIC_ROW.items()
        }
        for name, value in overrides.items():
            if name not in TOPIC_ROW:
                raise _unknown(name, TOPIC_ROW)
            if value is not None:
                values[name] = _parse(TOPIC_ROW[name], value)
        lag_min, lag_max = "min.compaction.lag.ms", "max.compaction.lag.ms"
        if values[lag_min] > values[lag_max]:
            least, most = (name if overrides.get(name) else BROKER_NAME[name] for name in (lag_min, lag_max))
            raise ConfigError(f"{least}={values[lag_min]}: must not be more than {most}={values[lag_max]}")
        try:
            log = LogConfig(
                segment_bytes=values["segment.bytes"],
                index_interval_bytes=values["index.interval.bytes"],
                index_bytes_max=values["segment.index.bytes"],
                segment_ms=values["segment.ms"],
                segment_jitter_ms=values["segment.jitter.ms"],
                log_append_time=values["message.timestamp.type"] == LOG_APPEND_TIME,
                delete=DELETE in values["cleanup.policy"],
                compact=COMPACT in values["cleanup.policy"],
                retention_ms=values["retention.ms"],
                retention_bytes=values["retention.bytes"],
                delete_retention_ms=values["delete.retention.ms"],
                dirty_ratio_min=values["min.cleanable.dirty.ratio"],
                compaction_lag_ms_min=values[lag_min],
                compaction_lag_ms_max=values[lag_max],
                flush_messages=values["flush.messages"],
                flush_ms=values["flush.ms"],
                file_delete_delay_ms=values["file.delete.delay.ms"],
                producer_expiration_ms=self["producer.id.expiration.ms"],
            )
        except ValueError as error:
            raise ConfigError(str(error)) from None
        codec = values["compression.type"]
        return TopicConfig(
            message_bytes_max=values["max.message.bytes"],
            compression_type=codec,
            compression_level=values[_LEVELS[codec]] if codec in _LEVELS else None,
            min_insync_replicas=values["min.insync.replicas"],
            timestamp_before_ms_max=values["message.timestamp.before.max.ms"],
            timestamp_after_ms_max=values["message.timestamp.after.max.ms"],
            log=log,
        )
