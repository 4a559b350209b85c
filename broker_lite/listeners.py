"""Where the broker listens, and what it tells clients to connect to: each is told the address of the listener that it
came in by, so that a notebook on this host and executors on others both find their way back.

Syntax and rules are Kafka's, but for one: a listener on every interface has no address that could be told, so it needs
an advertised one.
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import NamedTuple

from pylog.broker_lite.config import BrokerConfig, ConfigError

_DEFAULT = ("PLAINTEXT://127.0.0.1:9092",)
_PLAINTEXT = "PLAINTEXT"


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    name: str
    bind: Endpoint
    advertised: Endpoint  # port 0: the one that the system picks for `bind`


def short_form(text: str) -> str:
    """What `listeners` has for `--listen host:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"--listen {text}: must be host:port, such as 127.0.0.1:9092 (port 0 picks a free one)")
    host = host.removeprefix("[").removesuffix("]").replace("*", "")
    return f"{_PLAINTEXT}://{f'[{host}]' if ':' in host else host}:{port}"


def listeners_of(config: BrokerConfig) -> list[Listener]:
    bound = _by_name(config["listeners"] or _DEFAULT)
    advertised = _by_name(config["advertised.listeners"] or ())
    unknown = [name for name in advertised if name not in bound]
    if unknown:
        raise ConfigError(f"advertised.listeners: {unknown[0]} is not one of the listeners {', '.join(bound)}")
    _check_protocols(list(bound), config["listener.security.protocol.map"])
    _check_ports(list(bound.values()))
    return [Listener(name, bind, _advertised(name, bind, advertised.get(name))) for name, bind in bound.items()]


def _by_name(texts: tuple[str, ...]) -> dict[str, Endpoint]:
    found = {}
    for text in texts:
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        found[name.upper()] = Endpoint(host.removeprefix("[").removesuffix("]"), int(port))
    return found


def _check_protocols(names: list[str], protocol_map: str) -> None:
    pairs = [pair.partition(":") for pair in protocol_map.upper().split(",")]
    protocols = {name.strip(): protocol.strip() for name, _, protocol in pairs}
    for name in names:
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"listeners: no security protocol is known for {name}; "
                f"say listener.security.protocol.map={','.join(f'{one}:{_PLAINTEXT}' for one in names)}"
            )
        if protocol != _PLAINTEXT:
            raise ConfigError(f"listeners: {name} would need {protocol}: TLS and SASL are not there yet")


def _check_ports(bound: list[Endpoint]) -> None:
    """As Kafka: a port is one listener's alone, or is shared by one of IPv4 and one of IPv6."""
    taken: dict[int, list[Endpoint]] = {}
    for one in bound:
        others = taken.setdefault(one.port, [])
        if one.port and any({_version(one.host), _version(other.host)} != {4, 6} for other in others):
            raise ConfigError(f"listeners: {others[0]} and {one} have the same port")
        others.append(one)


def _version(host: str) -> int | None:
    """4 or 6, of an address; None for a name."""
    return next((version for version, packed in _packed(host)), None)


def _packed(host: str) -> Iterator[tuple[int, bytes]]:
    for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
        with contextlib.suppress(OSError):
            yield version, socket.inet_pton(family, host.partition("%")[0])


def _advertised(name: str, bind: Endpoint, advertised: Endpoint | None) -> Endpoint:
    if advertised is None and _is_wildcard(bind.host):
        raise ConfigError(
            f"listeners: {name} at {bind} listens on every interface, so clients cannot be told where to connect to; "
            f"say advertised.listeners={name}://HOST:{bind.port or 'PORT'} with a host name or address that they can "
            "reach, or let it listen at that address alone"
        )
    if advertised is not None and _is_wildcard(advertised.host):
        raise ConfigError(
            f"advertised.listeners: clients cannot connect to {advertised}; "
            f"name a host or an address of {name} that they can reach"
        )
    return advertised or bind


def _is_wildcard(host: str) -> bool:
    return not host or any(not any(address) for _, address in _packed(host))


def facts_of(config: BrokerConfig, opened: list[tuple[list[socket.socket], Endpoint]]) -> dict[str, object]:
    """What clients see of these options: the ports that the system picked, and who is found there. As with Kafka,
    which must be told all of it, they are never defaults."""
    bound, advertised = [], []
    for listener, (sockets, endpoint) in zip(listeners_of(config), opened, strict=True):
        bound.append(f"{listener.name}://{listener.bind._replace(port=sockets[0].getsockname()[1])}")
        advertised.append(f"{listener.name}://{endpoint}")
    node_id = config["node.id"]
    return {
        "node.id": node_id,
        "broker.id": node_id,
        "listeners": tuple(bound),
        "advertised.listeners": tuple(advertised),
    }


def open_sockets(listener: Listener) -> tuple[list[socket.socket], Endpoint]:
    """Sockets that have every address of the listener's host, to listen there, and what its clients are told."""
    host, port = listener.bind
    opened: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = _opened(family, kind, protocol)
            if one is None:
                continue
            opened.append(one)
            one.bind((address[0], port, *address[2:]))
            port = one.getsockname()[1]  # the same at all addresses, where the system picks it
    except OSError as error:
        for one in opened:
            one.close()
        raise ConfigError(f"cannot listen at {listener.bind}: {error.strerror or error}") from error
    return opened, listener.advertised._replace(port=listener.advertised.port or port)


def _opened(family: int, kind: int, protocol: int) -> socket.socket | None:
    """None where the system has no such addresses, e.g. no IPv6."""
    try:
        one = socket.socket(family, kind, protocol)
    except OSError:
        return None
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
    return one
