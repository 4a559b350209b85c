"""Connections with a broker's limits but with any answers, in this process: an echo, one that never comes, a file."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pylog.broker_lite.acceptor import Acceptor
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.connection import Answer
from pylog.broker_lite.connections import Connections
from pylog.broker_lite.listeners import listeners_of, open_sockets


class Connected:
    """`on_loop` is the way to its state: all of it is the loop's."""

    def __init__(self, answer: Callable[[memoryview, str], Answer], config: Mapping[str, Any]) -> None:
        self.config = BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:0", **config})
        (listener,) = listeners_of(self.config)
        self._sockets, endpoint = open_sockets(listener)
        self.bootstrap_servers = str(endpoint)
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        self._thread.start()
        self.on_loop(self._start)

    def _start(self) -> None:
        self.connections = Connections(self.config)
        self.acceptor = Acceptor(self._sockets, self._answer, self.connections, lambda: self.config)
        self.connections.start()
        self.acceptor.start()

    def on_loop(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def finish(self, hurry: bool = False) -> None:
        async def run() -> None:
            self.acceptor.close()
            event = asyncio.Event()
            if hurry:
                event.set()
            await self.connections.finish(event)

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@contextmanager
def connected(answer: Callable[[memoryview, str], Answer], **config: Any) -> Iterator[Connected]:
    """Options with underscores for dots."""
    served = Connected(answer, {name.replace("_", "."): value for name, value in config.items()})
    served.start()
    try:
        yield served
        served.finish(hurry=True)
    finally:
        served.stop()
