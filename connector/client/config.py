"""The options of a client, by Kafka's own names: one row each, and every row is honoured.

What Kafka knows and this client does not do is refused by name; what nobody knows is refused with
the nearest known name. A row belongs to consumers, to producers or to both, so that a source refuses
a producer's options and the other way round. A parsed configuration is frozen, hashable (it is the
key under which a process keeps its connections) and picklable (it travels to Spark's executors).
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from pylog.connector.client.config_types import (
    BOOLEAN,
    INT32_MAX,
    INT64_MAX,
    MILLISECONDS,
    TEXT,
    Option,
    ValueType,
    choice,
    integer,
    only,
    option,
)
from pylog.connector.client.config_types import Role as Role
from pylog.connector.client.errors import ConfigError
from pylog.connector.client.security_config import SecurityConfig, check_together

_LZ4_FAST = 9
IN_FLIGHT_MAX = 5  # of a partition: brokers remember so many of a producer's last batches, to know copies of them
DEFAULT_PARTITIONER, ROUND_ROBIN = "default", "RoundRobinPartitioner"
_JAVA_PACKAGE = "org.apache.kafka.clients.producer."
PARTITIONERS = {
    "default": DEFAULT_PARTITIONER,
    "roundrobinpartitioner": ROUND_ROBIN,
    f"{_JAVA_PACKAGE}roundrobinpartitioner": ROUND_ROBIN,
}


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/\s]+)):(?P<port>\d{1,5})")


def parse_addresses(text: str) -> tuple[Address, ...]:
    """`host:port,[::1]:port`, in the order given; a name that stands twice counts once."""
    addresses: dict[Address, None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _ADDRESS.fullmatch(part)
        if not found or not 0 < int(found["port"]) < 65536:
            raise ValueError(f"must be host:port pairs (IPv6 in brackets) with commas between; {part!r} is none")
        addresses[Address(found["ipv6"] or found["host"], int(found["port"]))] = None
    if not addresses:
        raise ValueError("must name at least one host:port")
    return tuple(addresses)


_CONSUMER, _PRODUCER = (Role.CONSUMER,), (Role.PRODUCER, Role.SINK)
_CALLER = (Role.CONSUMER, Role.SINK)  # a producer waits for max.block.ms and delivery.timeout.ms instead


@dataclass(frozen=True)
class ClientConfig(SecurityConfig):
    """An attribute per option, its dots as underscores. Make it with `parse`."""

    bootstrap_servers: tuple[Address, ...] = option(
        ValueType("list", parse_addresses), (), "host:port of some brokers, from which the others are learnt; required"
    )
    client_id: str = option(TEXT, "pylog", "the name under which the broker logs this client")
    request_timeout_ms: int = option(integer(1), 30_000, "how long one answer may take")
    default_api_timeout_ms: int = option(integer(1), 60_000, "how long a call is tried again before it fails", _CALLER)
    retries: int = option(integer(0), INT32_MAX, "how often a call is tried again, within its time")
    retry_backoff_ms: int = option(MILLISECONDS, 100, "the pause before the first retry; it doubles each time")
    retry_backoff_max_ms: int = option(MILLISECONDS, 1_000, "the longest pause before a retry")
    socket_connection_setup_timeout_ms: int = option(integer(1), 10_000, "how long a connection may take to open")
    connections_max_idle_ms: int = option(integer(1), 540_000, "a connection unused for longer is not used again")
    metadata_max_age_ms: int = option(MILLISECONDS, 300_000, "how long the leaders of a topic are believed")
    send_buffer_bytes: int = option(integer(-1), -1, "SO_SNDBUF of a connection; -1 leaves it to the system")
    receive_buffer_bytes: int = option(integer(-1), -1, "SO_RCVBUF of a connection; -1 leaves it to the system")

    group_id: str = option(TEXT, "", "the group whose offsets are committed", _CONSUMER)
    fetch_min_bytes: int = option(integer(1), 1, "a fetch waits until so many bytes are there", _CONSUMER)
    fetch_max_wait_ms: int = option(MILLISECONDS, 500, "how long a fetch waits for them", _CONSUMER)
    fetch_max_bytes: int = option(integer(1), 50 << 20, "the most one answer carries, a first batch aside", _CONSUMER)
    max_partition_fetch_bytes: int = option(
        integer(1), 4 << 20, "the most one answer carries of a partition, a first batch aside", _CONSUMER
    )
    check_crcs: str = option(only("true", "boolean"), "true", "every batch's CRC is checked, always", _CONSUMER)
    isolation_level: str = option(
        choice({name: name for name in ("read_uncommitted", "read_committed")}),
        "read_uncommitted",
        "read_committed: neither records of aborted transactions nor those behind the first open one",
        _CONSUMER,
    )

    acks: int = option(
        choice({"all": -1, "-1": -1, "1": 1, "0": 0}), -1, "who has a batch before it counts: all, 1, 0", _PRODUCER
    )
    batch_size: int = option(integer(0), 256 << 10, "the bytes of records after which a batch is full", _PRODUCER)
    linger_ms: int = option(MILLISECONDS, 5, "how long a batch that is not full waits for more records", _PRODUCER)
    max_block_ms: int = option(
        integer(0, INT64_MAX), 60_000, "how long sending waits for metadata, and for room in buffer.memory", _PRODUCER
    )
    partitioner_class: str = option(
        choice(PARTITIONERS),
        DEFAULT_PARTITIONER,
        "where records go that name no partition. default: by the murmur2 hash of the key; those without a key stay "
        "with a partition for about a batch, then take the next. RoundRobinPartitioner: each to the next partition, "
        "whatever its key",
        _PRODUCER,
    )
    partitioner_ignore_keys: bool = option(BOOLEAN, False, "true: as if no record had a key", _PRODUCER)
    compression_type: str = option(
        choice({name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}),
        "none",
        "how batches are compressed: none, gzip, snappy, lz4, zstd",
        _PRODUCER,
    )
    compression_gzip_level: int = option(integer(-1, 9), -1, "1 fast to 9 small; -1 the library's own", _PRODUCER)
    compression_lz4_level: int = option(
        integer(1, 17), _LZ4_FAST, "1 to 17, small; 9 stands for the fast method", _PRODUCER
    )
    compression_zstd_level: int = option(integer(-131072, 22), 3, "negative fast to 22 small", _PRODUCER)
    max_request_size: int = option(integer(1), 1 << 20, "the most bytes of one request, and of one batch", _PRODUCER)
    max_in_flight_requests_per_connection: int = option(
        integer(1), 5, "requests sent to a broker before the first of them is answered", _PRODUCER
    )
    buffer_memory: int = option(
        integer(1, INT64_MAX), 32 << 20, "bytes not yet acknowledged, beyond which sending waits", _PRODUCER
    )
    delivery_timeout_ms: int = option(integer(1), 120_000, "how long a batch is sent again before it fails", _PRODUCER)
    enable_idempotence: bool = option(
        BOOLEAN,
        True,
        "true: a batch that is sent again is not written twice, and batches keep their order. Needs acks=all, retries "
        "above 0 and at most 5 requests in flight; where one of these is set otherwise, the default is false",
        _PRODUCER,
    )

    @staticmethod
    def parse(options: Mapping[str, str], role: Role | None = None, *, prefix: str = "") -> "ClientConfig":
        """Check and convert; with a role, the other role's options are refused. ConfigError says what is wrong.

        `prefix` is what users write before a name: it stands before one that is suggested."""
        values: dict[str, Any] = {}
        for name, text in options.items():
            row = OPTIONS.get(name)
            if row is None:
                raise ConfigError(_refusal(name, role, prefix))
            if role is not None and not row.is_of(role):
                raise ConfigError(f"{name} is an option of a {row.roles[0].value}, and this is a {role.value}")
            try:
                values[_attribute(name)] = row.parse(str(text))
            except ValueError as error:
                raise ConfigError(f"{name} {error}" + ("" if row.is_secret else f" (it is {_shown(text)})")) from None
        if not values.get("bootstrap_servers"):
            raise ConfigError("bootstrap.servers is required: the host:port of at least one broker")
        config = ClientConfig(**values)
        check_together(config, options)
        return config if role is Role.CONSUMER else _producing(config, options)

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen codec; None where it has none, and for the fast method of lz4: in Kafka, too,
        the default of 9 means that one, and any other number the slow method."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": None if self.compression_lz4_level == _LZ4_FAST else self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


def _producing(config: ClientConfig, given: Mapping[str, str]) -> ClientConfig:
    """What a producer's options mean for each other, as in Kafka's own."""
    against = [
        f"{name} is {given[name]!r}"
        for name, fits in (
            ("acks", config.acks == -1),
            ("retries", config.retries > 0),
            ("max.in.flight.requests.per.connection", config.max_in_flight_requests_per_connection <= IN_FLIGHT_MAX),
        )
        if not fits
    ]
    if against and config.enable_idempotence:
        if "enable.idempotence" in given:
            raise ConfigError(
                f"enable.idempotence cannot be true where {' and '.join(against)}: it needs acks=all, retries above 0 "
                f"and at most {IN_FLIGHT_MAX} requests in flight"
            )
        config = replace(config, enable_idempotence=False)
    least_ms = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms < least_ms:
        if "delivery.timeout.ms" in given:
            raise ConfigError(
                f"delivery.timeout.ms is {config.delivery_timeout_ms}, and must be at least linger.ms plus "
                f"request.timeout.ms, {least_ms}: lower those, or raise it"
            )
        config = replace(config, delivery_timeout_ms=min(least_ms, INT32_MAX))
    return config


def _shown(text: object) -> str:
    """As it is in an error: some write a password into an address."""
    return repr(re.sub(r"//[^/\s]*@", "//[hidden]@", str(text)))


def _attribute(name: str) -> str:
    return name.replace(".", "_")


OPTIONS: dict[str, Option] = {
    row.name.replace("_", "."): Option(
        name=row.name.replace("_", "."),
        type=row.metadata["type"],
        default=row.default,
        roles=row.metadata["roles"],
        parse=row.metadata["parse"],
        doc=row.metadata["doc"],
    )
    for row in sorted(fields(ClientConfig), key=lambda row: row.name in SecurityConfig.__dataclass_fields__)
}

_NOT_YET = "is not supported yet"
_WITHOUT_MEANING = "has no meaning here"
_OF_THE_JVM = f"{_WITHOUT_MEANING}: security is Python's, not the JVM's"
_IN_JAAS = "give username and password in sasl.jaas.config"
# Kafka's other options, with what to say about them; a name that ends in a dot stands for all that begin so.
_REFUSED = {
    "sasl.kerberos.": f"{_NOT_YET}: neither Kerberos nor GSSAPI is",
    "sasl.username": f"{_WITHOUT_MEANING}: {_IN_JAAS}",
    "sasl.password": f"{_WITHOUT_MEANING}: {_IN_JAAS}",
    "sasl.mechanisms": f"{_WITHOUT_MEANING}: use sasl.mechanism",
    "sasl.login.refresh.": f"{_WITHOUT_MEANING}: a token is renewed after four fifths of its time",
    "sasl.login.connect.timeout.ms": f"{_NOT_YET}: use request.timeout.ms",
    "sasl.login.read.timeout.ms": f"{_NOT_YET}: use request.timeout.ms",
    "sasl.login.retry.backoff.": f"{_NOT_YET}: use retry.backoff.ms, which paces this too",
    "sasl.oauthbearer.client.credentials.": f"{_NOT_YET}: give clientId and clientSecret in sasl.jaas.config",
    "sasl.oauthbearer.scope": f"{_NOT_YET}: give scope in sasl.jaas.config",
    "sasl.oauthbearer.assertion.": _NOT_YET,
    "sasl.oauthbearer.jwt.": _NOT_YET,
    "sasl.oauthbearer.jwks.": f"{_WITHOUT_MEANING}: tokens are looked at by the broker",
    "sasl.oauthbearer.expected.": f"{_WITHOUT_MEANING}: tokens are looked at by the broker",
    "sasl.oauthbearer.header.urlencode": _NOT_YET,
    "sasl.oauthbearer.sub.claim.name": f"{_WITHOUT_MEANING}: tokens are looked at by the broker",
    "sasl.login.class": _OF_THE_JVM,
    "sasl.client.callback.handler.class": _OF_THE_JVM,
    "ssl.truststore.password": f"{_WITHOUT_MEANING}: a truststore in PEM has none",
    "ssl.keystore.password": f"{_WITHOUT_MEANING}: a keystore in PEM has none; ssl.key.password is that of its key",
    "ssl.engine.factory.class": _OF_THE_JVM,
    "ssl.provider": _OF_THE_JVM,
    "ssl.keymanager.algorithm": _OF_THE_JVM,
    "ssl.trustmanager.algorithm": _OF_THE_JVM,
    "ssl.secure.random.implementation": _OF_THE_JVM,
    "security.providers": _OF_THE_JVM,
    "transactional.id": _NOT_YET,
    "transaction.timeout.ms": _NOT_YET,
    "transaction.two.phase.commit.enable": _NOT_YET,
    "client.rack": _NOT_YET,
    "group.instance.id": _NOT_YET,
    "group.protocol": _NOT_YET,
    "group.remote.assignor": _NOT_YET,
    "partition.assignment.strategy": _NOT_YET,
    "session.timeout.ms": _NOT_YET,
    "heartbeat.interval.ms": _NOT_YET,
    "max.poll.interval.ms": _NOT_YET,
    "allow.auto.create.topics": _NOT_YET,
    "client.dns.lookup": f"{_NOT_YET}: all addresses of a name are tried",
    "socket.connection.setup.timeout.max.ms": f"{_NOT_YET}: use socket.connection.setup.timeout.ms",
    "reconnect.backoff.ms": f"{_NOT_YET}: use retry.backoff.ms, which paces new connections too",
    "reconnect.backoff.max.ms": f"{_NOT_YET}: use retry.backoff.max.ms, which paces new connections too",
    "bootstrap.controllers": _NOT_YET,
    "metadata.recovery.": f"{_NOT_YET}: bootstrap.servers are always tried again",
    "metadata.max.idle.ms": _NOT_YET,
    "metric.": _NOT_YET,
    "metrics.": _NOT_YET,
    "auto.include.jmx.reporter": _NOT_YET,
    "enable.metrics.push": _NOT_YET,
    "max.poll.records": f"{_WITHOUT_MEANING}: records are read as whole batches",
    "partitioner.adaptive.partitioning.enable": f"{_NOT_YET}: partitions get equal shares",
    "partitioner.availability.timeout.ms": f"{_NOT_YET}: partitions get equal shares",
    "key.serializer": f"{_WITHOUT_MEANING}: keys are strings or bytes",
    "value.serializer": f"{_WITHOUT_MEANING}: values are strings or bytes",
    "key.deserializer": f"{_WITHOUT_MEANING}: keys are read as bytes",
    "value.deserializer": f"{_WITHOUT_MEANING}: values are read as bytes",
    "auto.offset.reset": f"{_WITHOUT_MEANING}: use the source's own option for where to start",
    "enable.auto.commit": f"{_WITHOUT_MEANING}: offsets are committed when a batch is done",
    "auto.commit.interval.ms": f"{_WITHOUT_MEANING}: offsets are committed when a batch is done",
    "exclude.internal.topics": f"{_WITHOUT_MEANING}: topics are read by name",
    "interceptor.classes": f"{_WITHOUT_MEANING}: there are no interceptors",
}


def names_of(role: Role | None) -> list[str]:
    """Of the options that this role takes; without one, of all."""
    return [row.name for row in OPTIONS.values() if row.is_of(role)]


def _refusal(name: str, role: Role | None, prefix: str) -> str:
    for refused, reason in _REFUSED.items():
        if name == refused or (refused.endswith(".") and name.startswith(refused)):
            return f"{name} {reason}"
    near = difflib.get_close_matches(name.lower(), names_of(role), n=1, cutoff=0.6)
    return f"{name} is not an option" + (f": did you mean {prefix}{near[0]}?" if near else "")
