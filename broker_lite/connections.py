"""All connections of a broker: what they share, and when they end.

One sweep a second looks at all of them, so that no request pays for a timer: who was idle for too long is closed, and,
while others wait for memory, who holds some of it for a request that does not come.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.connection import Connection
from pylog.broker_lite.frame_memory import FrameMemory
from pylog.broker_lite.protocol.framing import SIZE_BYTES

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 256 * 1024
_SPARES_MAX = 4
_SPARE_BYTES_MAX = 2 << 20
_TICK_SECONDS = 1
_STALL_TICKS_MAX = 10  # for a request to come whole, while others wait for the memory that it holds
_FINISH_SECONDS_MAX = 5  # for what is under way when the broker stops


class Connections:
    def __init__(self, config: BrokerConfig) -> None:
        self.request_bytes_max: int = config["socket.request.max.bytes"]
        self.received = bytearray(_RECEIVE_BYTES)  # whoever receives has it, until it has dealt with what came
        self.received_view = memoryview(self.received)
        self.size_view = self.received_view[:SIZE_BYTES]
        self._spares: list[bytearray] = []
        self.memory = FrameMemory(config["queued.max.request.bytes"])
        self.tick = 0
        self.made_count = self.refused_count = self.idle_closed_count = 0
        self.count_by_address: Counter[str] = Counter()  # from the accept on
        self.count = 0
        self.when_one_goes: list[Callable[[], None]] = []
        idle_ms: int = config["connections.max.idle.ms"]
        self._idle_ticks = None if idle_ms < 0 else max(1, round(idle_ms / 1000 / _TICK_SECONDS))
        self._all: set[Connection] = set()
        self._is_finishing = False
        self._empty: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    # Buffers for large requests

    def spare_of(self, size_bytes: int) -> bytearray | None:
        """At least so large, if there is one."""
        spares = self._spares
        return spares.pop() if spares and len(spares[-1]) >= size_bytes else None

    def keep_spare(self, buffer: bytearray) -> None:
        """Nobody uses it any more: handlers have copied what they need."""
        if len(buffer) <= _SPARE_BYTES_MAX:
            if len(self._spares) == _SPARES_MAX:
                del self._spares[0]
            self._spares.append(buffer)

    # Who is there

    def opened(self, address: str) -> None:
        """The socket was accepted."""
        self.made_count += 1
        self.count += 1
        self.count_by_address[address] += 1

    def closed(self, address: str) -> None:
        self.count -= 1
        self.count_by_address[address] -= 1
        if not self.count_by_address[address]:
            del self.count_by_address[address]
        for tell in self.when_one_goes:
            tell()

    def add(self, connection: Connection) -> None:
        self._all.add(connection)
        if self._is_finishing:
            connection.abort()

    def remove(self, connection: Connection) -> None:
        self._all.discard(connection)
        self.closed(connection.address)
        if not self._all and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    # Time

    def start(self) -> None:
        self._alarm = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self.start()
        self.tick += 1
        try:
            if self._idle_ticks is not None and self.tick % max(1, self._idle_ticks // 10) == 0:
                self._close_idle(self.tick - self._idle_ticks)
            if self.memory.is_waited_for:
                self._close_stalled(self.tick - _STALL_TICKS_MAX)
        except Exception:
            logger.exception("connections could not be looked at")

    def _close_idle(self, since: int) -> None:
        for connection in tuple(self._all):
            if connection.touched < since and not connection.is_answering:
                self.idle_closed_count += 1
                connection.abort()

    def _close_stalled(self, since: int) -> None:
        for connection in tuple(self._all):
            if connection.frame_since < since and connection.held_bytes:
                connection.close_for(
                    f"sent a part of a request and not the rest for {_STALL_TICKS_MAX} s: it held "
                    f"{connection.held_bytes} bytes that others wait for (queued.max.request.bytes)"
                )

    # The end

    async def finish(self, hurry: asyncio.Event) -> None:
        """What has come whole is answered; then all are closed, after a while or in a hurry also those who still read
        their answers."""
        self._is_finishing = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._empty = asyncio.get_running_loop().create_future()
        for connection in tuple(self._all):
            connection.finish()
        if self._all:
            hurried: asyncio.Future[Any] = asyncio.get_running_loop().create_task(hurry.wait())
            events: list[asyncio.Future[Any]] = [self._empty, hurried]
            await asyncio.wait(events, timeout=_FINISH_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
        for connection in tuple(self._all):
            connection.abort()
        while self._all:
            await asyncio.sleep(0)  # asyncio tells them in its next turn
