"""What a user's options mean: every one is known, checked and honoured, or refused.

The rows are in option_rows. What nobody knows is refused with the nearest known name; what Spark itself puts there is
let through. `kafka.*` go to the client's own table.
"""

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

from pylog.broker_lite.protocol.consumer_offsets import TOPIC as COMMITS_TOPIC
from pylog.connector.client.cluster import EARLIEST, LATEST
from pylog.connector.client.config import ClientConfig, Role, names_of
from pylog.connector.client.errors import ConfigError
from pylog.connector.spark.offsets import AtGroup, AtTime, Wanted
from pylog.connector.spark.option_rows import GROUP, OPTIONS, SOURCE, SPARKS_OWN, Option, Taker
from pylog.connector.spark.subscription import Assignment, Pattern, Subscription, Topics


class OtherTakersOption(ConfigError):
    """An option that is known, but not here."""


# Where a source differs from Kafka's consumer. Larger fetches: a task reads one partition only. Fresher metadata:
# a stream is to find new partitions soon.
SOURCE_CLIENT_DEFAULTS = {"max.partition.fetch.bytes": str(4 << 20), "metadata.max.age.ms": "10000"}

# A wrong address is noticed soon. Once a query runs, a broker that restarts gets all of default.api.timeout.ms; and
# so it does from the start, when a user sets that.
CONTACT_TIMEOUT_MS = 5_000

POLL_TIMEOUT_MS = 120_000  # as in Spark's connector, where it is spark.network.timeout

_KAFKA = "kafka."  # before the names of the client's options

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


class Position(NamedTuple):
    """Where reading starts or ends, and the option that says so."""

    option: str
    wanted: Wanted


class SourceOptions(NamedTuple):
    """Small and picklable: it travels to the executors."""

    client: ClientConfig
    contact_timeout_ms: int  # for the first call to a cluster that may not be there at all
    subscription: Subscription
    starting: Position
    ending: Position
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    bytes_per_trigger_max: int | None
    partitions_min: int | None
    records_per_partition_max: int | None
    include_headers: bool
    decode: str | None
    push_filters: bool
    fail_on_data_loss: bool
    group_id_prefix: str
    look_up_attempts: int
    look_up_pause_ms: int
    poll_timeout_ms: int  # how long a task waits for records that should be there


class SinkOptions(NamedTuple):
    client: ClientConfig
    contact_timeout_ms: int
    topic: str | None


def source_options(given: Mapping[str, str], taker: Taker) -> SourceOptions:
    own, client = _parse(given, taker)
    config = _client({**SOURCE_CLIENT_DEFAULTS, **client}, Role.CONSUMER)
    starting, ending = _starting(own), _ending(own)
    if isinstance(starting.wanted, AtGroup) and not config.group_id:
        raise ConfigError("startingOffsets is group: kafka.group.id must name the group that says where to start")
    if "startingoffsetswithoutcommit" in map(str.lower, given) and not isinstance(starting.wanted, AtGroup):
        where = f"startingOffsets={GROUP}, and {starting.option} says otherwise"
        raise ConfigError(f"startingOffsetsWithoutCommit goes with {where}: leave it out")
    if taker is Taker.BATCH:
        _check_batch(starting, LATEST, "it starts at earliest or at offsets")
        _check_batch(ending, EARLIEST, "it ends at latest or at offsets")
        _check_order(starting, ending)
    offsets_max, offsets_min = own.get("maxOffsetsPerTrigger"), own.get("minOffsetsPerTrigger")
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise ConfigError(f"minOffsetsPerTrigger ({offsets_min}) is above maxOffsetsPerTrigger ({offsets_max})")
    if own["decode"] is not None and own["includeHeaders"]:
        raise ConfigError("includeHeaders is true, but with decode there is no column headers: leave one of them out")
    if own["decode"] is not None and own.get("pushFilters"):
        raise ConfigError("pushFilters is true, but with decode the columns are not those of the log: leave one out")
    subscription = _subscription(own)
    if own["decode"] is not None and not _is_of_commits(subscription):
        raise ConfigError(f"decode is offsets, which only {COMMITS_TOPIC} has: subscribe to it, or assign it, alone")
    poll_timeout_ms = own["kafkaConsumer.pollTimeoutMs"]
    if poll_timeout_ms is None:
        set_by_user = "default.api.timeout.ms" in client
        poll_timeout_ms = config.default_api_timeout_ms if set_by_user else POLL_TIMEOUT_MS
    return SourceOptions(
        client=config,
        contact_timeout_ms=_contact_timeout_ms(client, config),
        subscription=subscription,
        starting=starting,
        ending=ending,
        offsets_per_trigger_max=offsets_max,
        offsets_per_trigger_min=offsets_min,
        trigger_delay_ms_max=own.get("maxTriggerDelay", 0),
        bytes_per_trigger_max=own.get("maxBytesPerTrigger"),
        partitions_min=own["minPartitions"],
        records_per_partition_max=own["maxRecordsPerPartition"],
        include_headers=own["includeHeaders"],
        decode=own["decode"],
        push_filters=own.get("pushFilters", False),
        fail_on_data_loss=own["failOnDataLoss"],
        group_id_prefix=own.get("groupIdPrefix", ""),
        look_up_attempts=own["fetchOffset.numRetries"],
        look_up_pause_ms=own["fetchOffset.retryIntervalMs"],
        poll_timeout_ms=poll_timeout_ms,
    )


def _subscription(own: Mapping[str, Any]) -> Subscription:
    kinds = {"subscribe": Topics, "subscribePattern": Pattern, "assign": Assignment}
    given = [name for name in kinds if own[name] is not None]
    if len(given) != 1:
        what = f"these are given: {', '.join(given)}" if given else "none is given"
        raise ConfigError(f"exactly one of {', '.join(kinds)} says what is read, and {what}")
    found: Subscription = kinds[given[0]](own[given[0]])
    return found


def _is_of_commits(subscription: Subscription) -> bool:
    match subscription:
        case Topics(names):
            return set(names) == {COMMITS_TOPIC}
        case Assignment(places):
            return {topic for topic, _ in places} == {COMMITS_TOPIC}
        case Pattern():
            return False  # it finds no internal topics


def _starting(own: Mapping[str, Any]) -> Position:
    """The option that comes first wins, as in Spark's connector: one time for all, a time for each, offsets."""
    none_is_latest = own["startingOffsetsByTimestampStrategy"] == "latest"
    for option in ("startingTimestamp", "startingOffsetsByTimestamp"):
        if own[option] is not None:
            return Position(option, AtTime(own[option], none_is_latest))
    wanted = own["startingOffsets"]
    if wanted == GROUP:
        without = {"earliest": EARLIEST, "latest": LATEST, "error": None}[own["startingOffsetsWithoutCommit"]]
        wanted = AtGroup(without)
    return Position("startingOffsets", wanted)


def _ending(own: Mapping[str, Any]) -> Position:
    for option in ("endingTimestamp", "endingOffsetsByTimestamp"):
        if own.get(option) is not None:
            return Position(option, AtTime(own[option], none_is_latest=True))
    return Position("endingOffsets", own.get("endingOffsets", LATEST))


def _check_batch(position: Position, refused: int, reason: str) -> None:
    option, wanted = position
    if wanted == refused or (isinstance(wanted, dict) and refused in wanted.values()):
        name = "latest" if refused == LATEST else "earliest"
        raise ConfigError(f"{option} cannot be {name} ({refused}) here, or a batch would be empty: {reason}")


def _check_order(starting: Position, ending: Position) -> None:
    """Where each partition has its own start and end; what other pairs come to is known when they are looked up."""
    match starting.wanted, ending.wanted:
        case (AtTime(times_ms=dict() as start), AtTime(times_ms=dict() as end)) | (dict() as start, dict() as end):
            for (topic, partition), number in start.items():
                if number > end.get((topic, partition), LATEST) >= 0:
                    which = f"{topic}-{partition}: {starting.option} ({number})"
                    raise ConfigError(f"{which} is behind {ending.option} ({end[topic, partition]})")


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    own, client = _parse(given, Taker.SINK)
    config = _client(client, Role.SINK)
    return SinkOptions(config, _contact_timeout_ms(client, config), own["topic"])


def any_source_options(given: Mapping[str, str]) -> SourceOptions:
    """Asked before it is known whether this will be a batch or a stream; what suits neither is refused now."""
    refusals: list[ConfigError] = []
    for taker in SOURCE:
        try:
            return source_options(given, taker)
        except ConfigError as error:
            refusals.append(error)
    raise next((error for error in refusals if not isinstance(error, OtherTakersOption)), refusals[0])


def _parse(given: Mapping[str, str], taker: Taker) -> tuple[dict[str, Any], dict[str, str]]:
    """(the values of this taker's rows, the client's options without their prefix)."""
    lower = {name.lower(): text for name, text in given.items()}
    rows = [row for row in OPTIONS if taker in row.takers]
    known = {row.name.lower() for row in rows} | {name.lower() for name in SPARKS_OWN}
    client = {name.removeprefix(_KAFKA): text for name, text in lower.items() if name.startswith(_KAFKA)}
    for name in lower:
        if name not in known and not name.startswith(_KAFKA):
            raise _refusal(name, taker)
    return {row.name: _value(row, lower) for row in rows}, client


def _value(row: Option, given: Mapping[str, str]) -> Any:
    text = given.get(row.name.lower(), row.default)
    if text is None:
        return None
    try:
        return row.parse(text)
    except ValueError as error:
        raise ConfigError(f"{row.name} {error} (it is {text!r})") from None


def _client(options: Mapping[str, str], role: Role) -> ClientConfig:
    for name, reason in _KAFKA_REFUSED.items():
        if name in options:
            raise ConfigError(f"{_KAFKA}{name} is not for this data source: {reason}")
    try:
        return ClientConfig.parse(options, role, prefix=_KAFKA)
    except ConfigError as error:  # each begins with the name of its option
        raise ConfigError(f"{_KAFKA}{error}") from None


def _contact_timeout_ms(given: Mapping[str, str], config: ClientConfig) -> int:
    return config.default_api_timeout_ms if "default.api.timeout.ms" in given else CONTACT_TIMEOUT_MS


def _refusal(name: str, taker: Taker) -> ConfigError:
    for row in OPTIONS:
        if row.name.lower() == name:
            takers = " and ".join(taker.value for taker in row.takers)
            return OtherTakersOption(f"{row.name} is an option of {takers}, not of {taker.value}")
    role = Role.SINK if taker is Taker.SINK else Role.CONSUMER
    names = [row.name for row in OPTIONS if taker in row.takers] + [f"{_KAFKA}{name}" for name in names_of(role)]
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.6)
    return ConfigError(f"{name} is not an option" + (f": did you mean {by_lower[near[0]]}?" if near else ""))
