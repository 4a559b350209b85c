"""The options of the data source: one row each, and every row is honoured.

What Spark's Kafka connector knows and this source does not do yet is refused by name; what nobody knows is refused
with the nearest known name; what Spark itself puts there is let through. `kafka.*` go to the client's own table.
"""

import difflib
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from pylog.connector.client.cluster import EARLIEST, LATEST
from pylog.connector.client.config import OPTIONS as CLIENT_OPTIONS
from pylog.connector.client.config import ClientConfig, Role
from pylog.connector.client.errors import ConfigError
from pylog.connector.spark.offsets import Wanted, parse_wanted

_INT64_MAX = (1 << 63) - 1


class Taker(Enum):
    """Who takes an option; the value is what messages call it."""

    BATCH = "spark.read"
    STREAM = "spark.readStream"
    SINK = "a write"


class OtherTakersOption(ConfigError):
    """An option that is known, but not here."""


class Option(NamedTuple):
    """A row: `parse` turns text into a value, or raises ValueError with what it must be."""

    name: str
    takers: tuple[Taker, ...]
    parse: Callable[[str], Any]
    default: Any
    doc: str


def _boolean(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ValueError("must be true or false")
    return found


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value <= _INT64_MAX:
        raise ValueError("must be a whole number above 0")
    return value


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not topics:
        raise ValueError("must name at least one topic, several with commas between")
    return topics


def _topic(text: str) -> str:
    if not text.strip():
        raise ValueError("must name a topic")
    return text.strip()


def _starting_batch(text: str) -> Wanted:
    return _without(LATEST, "latest", parse_wanted(text), "a batch would be empty: it starts at earliest or at offsets")


def _ending_batch(text: str) -> Wanted:
    return _without(EARLIEST, "earliest", parse_wanted(text), "a batch would be empty: it ends at latest or at offsets")


def _without(refused: int, name: str, wanted: Wanted, reason: str) -> Wanted:
    if wanted == refused or (isinstance(wanted, dict) and refused in wanted.values()):
        raise ValueError(f"cannot be {name} ({refused}) here, or {reason}")
    return wanted


_BATCH, _STREAM, _SINK = (Taker.BATCH,), (Taker.STREAM,), (Taker.SINK,)
_SOURCE = (Taker.BATCH, Taker.STREAM)

OPTIONS = (
    Option("subscribe", _SOURCE, _topics, None, "the topics to read, with commas between; required"),
    Option(
        "startingOffsets",
        _BATCH,
        _starting_batch,
        EARLIEST,
        'where to start: earliest, or JSON as {"topic": {"0": 23, "1": -2}} that names every partition; -2 is earliest',
    ),
    Option(
        "startingOffsets",
        _STREAM,
        parse_wanted,
        LATEST,
        "where a new query starts: earliest, latest, or JSON, where -1 is latest; a checkpoint knows better",
    ),
    Option(
        "endingOffsets",
        _BATCH,
        _ending_batch,
        LATEST,
        "where to end (the offset itself is not read): latest, or JSON, where -1 is latest",
    ),
    Option(
        "maxOffsetsPerTrigger",
        _STREAM,
        _positive,
        None,
        "the most offsets of one micro-batch, shared among partitions by what waits in them; not for Trigger.Once",
    ),
    Option("includeHeaders", _SOURCE, _boolean, False, "whether there is a column headers"),
    Option(
        "failOnDataLoss",
        _SOURCE,
        _boolean,
        True,
        "true: fail when records to be read are gone; false: warn, and go on at the earliest that are there",
    ),
    Option("topic", _SINK, _topic, None, "the topic all rows go to; a column topic is then left alone"),
)

# Where a source differs from Kafka's consumer. Larger fetches: a task reads one partition only. Fresher metadata:
# a stream is to find new partitions soon.
SOURCE_CLIENT_DEFAULTS = {"max.partition.fetch.bytes": str(4 << 20), "metadata.max.age.ms": "10000"}

# A wrong address is noticed soon. Once a query runs, a broker that restarts gets all of default.api.timeout.ms; and
# so it does from the start, when a user sets that.
CONTACT_TIMEOUT_MS = 5_000

_NOT_YET = (
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "includeTimestamp",
)
_SPARKS_OWN = ("path", "checkpointLocation", "queryName")

_BYTES = "are bytes for Kafka: make and read them with columns of the DataFrame"
_KAFKA_REFUSED = {
    "auto.offset.reset": "use startingOffsets: Spark's checkpoint, not the consumer, says where a query goes on",
    "enable.auto.commit": "offsets are committed to kafka.group.id when a micro-batch is done, never before",
    "key.deserializer": f"keys {_BYTES}",
    "value.deserializer": f"values {_BYTES}",
    "key.serializer": f"keys {_BYTES}",
    "value.serializer": f"values {_BYTES}",
    "interceptor.classes": "classes of the JVM cannot be called from here",
}


class SourceOptions(NamedTuple):
    """Small and picklable: it travels to the executors."""

    client: ClientConfig
    contact_timeout_ms: int  # for the first call to a cluster that may not be there at all
    topics: tuple[str, ...]
    starting: Wanted
    ending: Wanted
    offsets_per_trigger_max: int | None
    include_headers: bool
    fail_on_data_loss: bool


class SinkOptions(NamedTuple):
    client: ClientConfig
    contact_timeout_ms: int
    topic: str | None


def source_options(given: Mapping[str, str], taker: Taker) -> SourceOptions:
    own, client = _parse(given, taker)
    if own["subscribe"] is None:
        raise ConfigError("subscribe is required: the topics to read, with commas between")
    config = _client({**SOURCE_CLIENT_DEFAULTS, **client}, Role.CONSUMER)
    return SourceOptions(
        client=config,
        contact_timeout_ms=_contact_timeout_ms(client, config),
        topics=own["subscribe"],
        starting=own["startingOffsets"],
        ending=own.get("endingOffsets", LATEST),
        offsets_per_trigger_max=own.get("maxOffsetsPerTrigger"),
        include_headers=own["includeHeaders"],
        fail_on_data_loss=own["failOnDataLoss"],
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    own, client = _parse(given, Taker.SINK)
    config = _client(client, Role.PRODUCER)
    return SinkOptions(config, _contact_timeout_ms(client, config), own["topic"])


def includes_headers(given: Mapping[str, str]) -> bool:
    """Asked before it is known whether this will be a batch or a stream; what suits neither is refused now."""
    refusals: list[ConfigError] = []
    for taker in _SOURCE:
        try:
            return source_options(given, taker).include_headers
        except ConfigError as error:
            refusals.append(error)
    raise next((error for error in refusals if not isinstance(error, OtherTakersOption)), refusals[0])


def _parse(given: Mapping[str, str], taker: Taker) -> tuple[dict[str, Any], dict[str, str]]:
    """(the values of this taker's rows, the client's options without their prefix)."""
    lower = {name.lower(): text for name, text in given.items()}
    rows = [row for row in OPTIONS if taker in row.takers]
    known = {row.name.lower() for row in rows} | {name.lower() for name in _SPARKS_OWN}
    client = {name.removeprefix("kafka."): text for name, text in lower.items() if name.startswith("kafka.")}
    for name in lower:
        if name not in known and not name.startswith("kafka."):
            raise _refusal(name, taker)
    return {row.name: _value(row, lower) for row in rows}, client


def _value(row: Option, given: Mapping[str, str]) -> Any:
    text = given.get(row.name.lower())
    if text is None:
        return row.default
    try:
        return row.parse(text)
    except ValueError as error:
        raise ConfigError(f"{row.name} {error} (it is {text!r})") from None


def _client(options: Mapping[str, str], role: Role) -> ClientConfig:
    for name, reason in _KAFKA_REFUSED.items():
        if name in options:
            raise ConfigError(f"kafka.{name} is not for this data source: {reason}")
    try:
        return ClientConfig.parse(options, role)
    except ConfigError as error:  # each begins with the name of its option
        raise ConfigError(f"kafka.{error}") from None


def _contact_timeout_ms(given: Mapping[str, str], config: ClientConfig) -> int:
    return config.default_api_timeout_ms if "default.api.timeout.ms" in given else CONTACT_TIMEOUT_MS


def _refusal(name: str, taker: Taker) -> ConfigError:
    for row in OPTIONS:
        if row.name.lower() == name:
            takers = " and ".join(taker.value for taker in row.takers)
            return OtherTakersOption(f"{row.name} is an option of {takers}, not of {taker.value}")
    for later in _NOT_YET:
        if later.lower() == name:
            return ConfigError(f"{later} is not supported yet")
    names = [row.name for row in OPTIONS if taker in row.takers] + [f"kafka.{name}" for name in CLIENT_OPTIONS]
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.6)
    return ConfigError(f"{name} is not an option" + (f": did you mean {by_lower[near[0]]}?" if near else ""))
