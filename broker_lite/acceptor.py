"""Accepts connections of one listener, within the limits.

As in Kafka, one too many of an address (`max.connections.per.ip`) is closed at once, and one too many of all
(`max.connections`) waits in the system's queue until another goes. Where the process has no file handle left, nobody is
accepted for a second, and then it is tried again.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import sys
from collections.abc import Callable
from functools import partial

from pylog.broker_lite.client import Client
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.connection import Answer, Connection
from pylog.broker_lite.connections import Connections

logger = logging.getLogger(__name__)

_NO_HANDLE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_AGAIN_SECONDS = 1
_QUEUE_MAX = 1024  # connections that the system holds until they are accepted
_AT_ONCE_MAX = 64  # then others have their turn


class Acceptor:
    def __init__(
        self,
        sockets: list[socket.socket],
        answer: Callable[[memoryview, Client], Answer],
        connections: Connections,
        config: Callable[[], BrokerConfig],
    ) -> None:
        """`config` is asked for the limits each time: they may change."""
        self._sockets = sockets
        self._answer = answer
        self._connections = connections
        self._config = config
        self._opening: set[asyncio.Task[object]] = set()
        self._is_open = self._is_accepting = False
        self._is_full = self._has_told = False

    def start(self) -> None:
        self._is_open = True
        for listening in self._sockets:
            listening.listen(_QUEUE_MAX)
        self._connections.when_one_goes.append(self._one_went)
        self._accept_again()

    def close(self) -> None:
        self._stop()
        self._is_open = False
        for listening in self._sockets:
            listening.close()

    def _accept_again(self) -> None:
        if self._is_open and not self._is_accepting:
            self._is_accepting, self._is_full = True, False
            for listening in self._sockets:
                asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _stop(self) -> None:
        self._is_accepting = False
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)

    def _one_went(self) -> None:
        if self._is_full:
            self._accept_again()

    def _accept(self, listening: socket.socket) -> None:
        config = self._config()
        for _ in range(_AT_ONCE_MAX):
            if self._connections.count >= config["max.connections"]:
                self._wait_for_one_to_go(config["max.connections"])
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._has_told = False
                return
            except OSError as error:
                if error.errno in _NO_HANDLE:
                    self._wait_for_handles(error)
                else:  # of that connection, says the system: the next one may be well
                    logger.warning("a connection could not be accepted: %s", error)
                return
            self._take(accepted, (address[0], address[1]), config["max.connections.per.ip"])

    def _take(self, accepted: socket.socket, address: tuple[str, int], of_address_max: int) -> None:
        connections = self._connections
        if connections.count_by_address[address[0]] >= of_address_max:
            connections.refused_count += 1
            logger.info("refused %s:%d: it has max.connections.per.ip=%d already", *address, of_address_max)
            accepted.close()
            return
        connections.opened(address[0])
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # it may have gone already
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # who goes without a word is noticed
            unpace(accepted, address[0])
        opening = asyncio.get_running_loop().create_task(self._open(accepted, address))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        make = partial(Connection, self._answer, self._connections, address)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make, accepted)
        except OSError as error:  # it has gone already
            logger.debug("%s:%d went away: %s", *address, error)
            self._connections.closed(address[0])
            accepted.close()

    def _wait_for_one_to_go(self, connections_max: int) -> None:
        self._stop()
        self._is_full = True
        if not self._has_told:
            logger.warning("there are max.connections=%d: new ones wait until others go", connections_max)
            self._has_told = True

    def _wait_for_handles(self, error: OSError) -> None:
        self._stop()
        if not self._has_told:
            logger.error("no connection can be accepted: %s; it is tried again every second", error)
            self._has_told = True
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._accept_again)


def unpace(connected: socket.socket, host: str) -> None:
    """A system may pace what it sends, by timers (BBR does): between processes of one machine that costs a quarter of
    the time of reading, and nothing can be congested there."""
    if sys.platform == "linux" and (host.startswith("127.") or host == "::1"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # always there, and never paces
