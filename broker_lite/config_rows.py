"""The options, one row each, under Kafka's own names, with Kafka's defaults and bounds.

Flags, `conf/broker.toml` and what a topic may override all come from these rows and from those of logs. Where a
default or a bound is not Kafka's, the row says why.
"""

import re

from pylog.broker_lite.config_types import INT32_MAX, Kind, Row, anything, at_least, between, only
from pylog.broker_lite.log_rows import LOG_ROWS

_MINUTE_MS = 60 * 1000
_ONE_NODE = "there is one node, so each partition has one replica"


def _directories(value: tuple[str, ...]) -> str | None:
    return None if value and all(value) else "must name one directory or several, separated by commas"


_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9A-Fa-f:.%a-z]*\]|[^\[\]:/]*):([0-9]{1,5})")


def _listeners(value: tuple[str, ...]) -> str | None:
    found = [_LISTENER.fullmatch(one) for one in value]
    if not value or not all(one and int(one[3]) <= 65_535 for one in found):
        return "must be NAME://host:port, or several of them, separated by commas; an IPv6 address is in brackets"
    names = [one[1].upper() for one in found if one]
    return None if len(set(names)) == len(names) else "must have different names"


_PROTOCOLS = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}


def _protocol_map(value: str) -> str | None:
    """Kafka's default names all four; a listener that needs another than PLAINTEXT is refused with its listeners."""
    for pair in value.split(","):
        name, colon, protocol = pair.strip().partition(":")
        if not (name and colon and protocol.upper() in _PROTOCOLS):
            return "must be NAME:PLAINTEXT, or several of them, separated by commas"
        if protocol.upper() != "PLAINTEXT" and name.upper() != protocol.upper():
            return f"{name} cannot be {protocol}: TLS and SASL are not there yet"
    return None


BROKER_ROWS = (
    Row("node.id", Kind.INT, 1, between(0, INT32_MAX), "The id under which this broker presents itself."),
    Row("broker.id", Kind.INT, -1, anything, "Another name of node.id, from Kafka's past."),
    Row(
        "broker.rack",
        Kind.STRING,
        None,
        anything,
        "Where the broker stands: a rack or an availability zone, which clients are told.",
    ),
    Row(
        "log.dirs",
        Kind.LIST,
        None,
        _directories,
        "Where the logs are kept: directories, separated by commas. --data wins over it.",
    ),
    Row(
        "log.dir",
        Kind.LIST,
        ("/tmp/kafka-logs",),  # shown as Kafka shows it; no log is kept there unless somebody says so
        _directories,
        "Counts where log.dirs is not set. Its default does not: a broker that is not told of a directory stops.",
    ),
    Row(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        anything,
        "Create a topic when a client asks for metadata of one that is not there.",
    ),
    Row("num.partitions", Kind.INT, 1, between(1, 10_000), "Partitions of a topic whose creator did not say."),
    Row("delete.topic.enable", Kind.BOOLEAN, True, anything, "Let clients delete topics."),
    Row(
        "default.replication.factor",
        Kind.INT,
        1,
        only(1, _ONE_NODE),
        "Replicas of a topic whose creator did not say.",
    ),
    # Connections
    Row(
        "listeners",
        Kind.LIST,
        None,  # Kafka's is PLAINTEXT://:9092: every interface, which we do not do unasked
        _listeners,
        "Where the broker listens: NAME://host:port, separated by commas. --listen is the short way.",
    ),
    Row(
        "advertised.listeners",
        Kind.LIST,
        None,
        _listeners,
        "Where clients find the broker, by the names of its listeners; if not set, where it listens.",
    ),
    Row(
        "listener.security.protocol.map",
        Kind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        _protocol_map,
        "The security protocol of each listener, by its name; only PLAINTEXT is there.",
    ),
    Row(
        "max.connections",
        Kind.INT,
        INT32_MAX,
        at_least(0),
        "The most connections at a time; new ones wait until others go.",
        dynamic=True,
    ),
    Row(
        "max.connections.per.ip",
        Kind.INT,
        INT32_MAX,
        at_least(0),
        "The most connections from one address at a time; one more is closed.",
        dynamic=True,
    ),
    Row(
        "connections.max.idle.ms",
        Kind.LONG,
        10 * _MINUTE_MS,
        anything,
        "A connection that sent nothing for so long is closed (negative: never).",
    ),
    Row(
        "sasl.kerberos.min.time.before.relogin",
        Kind.LONG,
        _MINUTE_MS,
        anything,
        "How long Kerberos waits between two log-ins. As in Kafka, it counts where SASL is used: not here, so far.",
        dynamic=True,
    ),
    Row(
        "queued.max.request.bytes",
        Kind.LONG,
        -1,
        at_least(-1),
        "The memory for requests that are under way, of all connections together (-1: no bound).",
    ),
    Row("fetch.max.bytes", Kind.INT, 55 << 20, between(1024, INT32_MAX), "The most that one fetch is answered with."),
    Row(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        between(0, INT32_MAX),
        "So many readers need not name all their partitions in each fetch; others do (0: all do).",
    ),
    Row(
        "socket.request.max.bytes",
        Kind.INT,
        100 << 20,
        between(1, INT32_MAX),
        "The largest request; a connection that announces more is closed.",
    ),
    *LOG_ROWS,
    # Groups
    Row(
        "group.min.session.timeout.ms",
        Kind.INT,
        6_000,
        between(0, INT32_MAX),  # Kafka takes negative ones, which say no more than 0
        "The shortest session.timeout.ms that a member of a group may have.",
    ),
    Row(
        "group.max.session.timeout.ms",
        Kind.INT,
        30 * _MINUTE_MS,
        between(0, INT32_MAX),
        "The longest session.timeout.ms that a member of a group may have.",
    ),
    Row(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3_000,
        between(0, INT32_MAX),
        "The first rebalance of a group waits so long for more members.",
    ),
    Row("group.max.size", Kind.INT, INT32_MAX, between(1, INT32_MAX), "The most members that a group may have."),
    Row(
        "offsets.retention.minutes",
        Kind.INT,
        7 * 24 * 60,
        between(1, INT32_MAX),
        "Committed offsets of a group that has lost its members are kept so long.",
    ),
    Row(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        10 * _MINUTE_MS,
        at_least(1),
        "How often committed offsets to forget are looked for.",
    ),
    Row(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        between(1, 10_000),
        "Partitions of __consumer_offsets. Not to be changed once that topic is there.",
    ),
    Row(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        1,  # Kafka's is 3
        only(1, _ONE_NODE),
        "Replicas of __consumer_offsets.",
    ),
    Row(
        "offsets.topic.segment.bytes",
        Kind.INT,
        100 << 20,
        between(61, INT32_MAX),
        "Segments of __consumer_offsets, which is compacted. Counts when that topic is made.",
    ),
    Row(
        "offset.metadata.max.bytes",
        Kind.INT,
        4096,
        between(0, INT32_MAX),
        "The longest text that a client may commit beside an offset.",
    ),
)

ROW = {row.name: row for row in BROKER_ROWS}
