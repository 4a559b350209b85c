"""The broker on a socket, from start to a clean stop."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial

from pylog.broker_lite.broker import Broker
from pylog.broker_lite.config import BrokerConfig, ConfigError
from pylog.broker_lite.connection import Connection
from pylog.broker_lite.dispatch import answer
from pylog.broker_lite.listeners import Endpoint, listeners_of, open_sockets
from pylog.broker_lite.watch import watched

logger = logging.getLogger(__name__)

_LIMIT_PER_SEGMENT = 4  # an open one has two descriptors; the other half is for connections, and for reads under way
_NO_LIMIT = 1 << 20

_WILDCARDS = ("", "0.0.0.0", "::", "*")


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, an IPv6 address in brackets. A wildcard is refused: clients could not come back to it."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--listen {text}: must be host:port, such as 127.0.0.1:9092 (port 0 picks a free one)")
    host = host.removeprefix("[").removesuffix("]")
    if host in _WILDCARDS:
        raise ConfigError(
            f"--listen {text}: clients are told this address, so it must be one that they can reach; "
            "name the interface's own address (advertised.listeners are not supported yet)"
        )
    return host, int(port)


async def serve(
    listen: tuple[str, int],
    config: BrokerConfig,
    ready: Callable[[str], None],
    stop_when: asyncio.Event | None = None,
    *,
    metrics: tuple[str, int] | None = None,
    metrics_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Run until SIGTERM, SIGINT or `stop_when`; `ready` is told the address once connections are accepted."""
    segments_max = _raise_open_files_limit() // _LIMIT_PER_SEGMENT
    stop = stop_when or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    logger.info("starting with %s", ", ".join(map(str, config.directories)))
    async with watched(metrics, metrics_ready) as watch:
        # In a thread: recovery may take long, and meanwhile the process says that it is alive.
        open_broker = partial(Broker, config.directories, config, open_files_max=segments_max)
        broker = await loop.run_in_executor(None, open_broker)
        broker.coordinator.loaded()
        watch.loaded(broker)
        broker.upkeep.start()
        connections: set[Connection] = set()
        try:
            (listener,) = listeners_of(BrokerConfig.parse({"listeners": f"PLAINTEXT://{Endpoint(*listen)}"}))
            sockets, endpoint = open_sockets(listener)
            answered = watch.measured(partial(answer, broker, endpoint))
            make = partial(Connection, answered, config["socket.request.max.bytes"], connections)
            server = await loop.create_server(make, sock=sockets[0])
            watch.running()
            logger.info("listening on %s, node %d of cluster %s", endpoint, broker.node_id, broker.cluster_id)
            ready(str(endpoint))
            await stop.wait()
            watch.stopping()
            logger.info("stopping")
            server.close()
            for connection in tuple(connections):
                connection.close()
        finally:
            await broker.close()
            logger.info("stopped")


def _raise_open_files_limit() -> int:
    """The limit after it. Connections and segments take descriptors; the soft limit is often 1024 where 4096 or more
    are allowed."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):  # a system may have a limit of its own below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def stop_with_parent(stop: asyncio.Event) -> None:
    """Stop when standard input ends: the process that holds its other end is gone, killed or not."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def look() -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(descriptor, 1):
                loop.remove_reader(descriptor)
                stop.set()

    loop.add_reader(descriptor, look)
