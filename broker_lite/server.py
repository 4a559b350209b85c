"""The broker on a socket, from start to a clean stop."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

from pylog.broker_lite.acceptor import Acceptor
from pylog.broker_lite.broker import Broker
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.connections import Connections
from pylog.broker_lite.dispatch import answer
from pylog.broker_lite.garbage import Garbage
from pylog.broker_lite.listeners import Endpoint, facts_of, listeners_of, open_sockets
from pylog.broker_lite.watch import watched

logger = logging.getLogger(__name__)

_LIMIT_PER_SEGMENT = 4  # an open one has two descriptors; the other half is for connections, and for reads under way
_NO_LIMIT = 1 << 20
# Of Python, before a thread makes way. At its default, 5 ms, a thread that looks at records kept the loop waiting for
# as long at every system call: each gives the interpreter away, and a heartbeat takes four.
_TURN_SECONDS = 0.0002


async def serve(
    config: BrokerConfig,
    ready: Callable[[str], None],
    stop_when: asyncio.Event | None = None,
    *,
    metrics: tuple[str, int] | None = None,
    metrics_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Run until SIGTERM, SIGINT or `stop_when`; `ready` is told where clients connect to, once they are accepted."""
    sys.setswitchinterval(_TURN_SECONDS)
    segments_max = _raise_open_files_limit() // _LIMIT_PER_SEGMENT
    stop, hurry = stop_when or asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_or_hurry, stop, hurry)
    opened = _open_sockets(config)  # before the data is looked at: a port that is taken is told at once
    config = config.with_facts(facts_of(config, opened))
    logger.info("starting with %s", ", ".join(map(str, config.directories)))
    async with watched(metrics, metrics_ready) as watch:
        # In a thread: recovery may take long, and meanwhile the process says that it is alive.
        open_broker = partial(Broker, config.directories, config, open_files_max=segments_max)
        broker = await loop.run_in_executor(None, open_broker)
        garbage = Garbage(lambda: broker.logs.count)
        garbage.start()
        broker.coordinator.loaded()
        watch.loaded(broker)
        broker.upkeep.start()
        connections = Connections(config)
        try:
            acceptors = [
                Acceptor(sockets, watch.measured(partial(answer, broker, endpoint)), connections, lambda: broker.config)
                for sockets, endpoint in opened
            ]
            connections.start()
            for acceptor in acceptors:
                acceptor.start()
            watch.running(connections)
            addresses = ",".join(str(endpoint) for _, endpoint in opened)
            logger.info("listening on %s, node %d of cluster %s", addresses, broker.node_id, broker.cluster_id)
            ready(addresses)
            await stop.wait()
            watch.stopping()
            logger.info("stopping")
            for acceptor in acceptors:
                acceptor.close()
            broker.stop_waiting()
            await connections.finish(hurry)
        finally:
            garbage.close()
            await broker.close()
            logger.info("stopped")


def _open_sockets(config: BrokerConfig) -> list[tuple[list[socket.socket], Endpoint]]:
    opened: list[tuple[list[socket.socket], Endpoint]] = []
    try:
        opened.extend(map(open_sockets, listeners_of(config)))
    except BaseException:
        for sockets, _ in opened:
            for one in sockets:
                one.close()
        raise
    return opened


def _stop_or_hurry(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    """A second signal: do not wait for clients. What is written is synced all the same."""
    if stop.is_set():
        hurry.set()
    stop.set()


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
