"""Connections with a broker's limits, in this process: to a broker on any file system, or with any answers at all."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pylog.broker_lite.acceptor import Acceptor
from pylog.broker_lite.broker import Broker
from pylog.broker_lite.client import Client
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.connection import Answer
from pylog.broker_lite.connections import Connections
from pylog.broker_lite.dispatch import answer as answer_of
from pylog.broker_lite.listeners import Endpoint, listeners_of, open_sockets
from pylog.storage.disk import DISK
from pylog.storage.ports import Clock, FileSystem


class Connected:
    """`on_loop` is the way to its state: all of it is the loop's."""

    def __init__(self, answer: Callable[[memoryview, Client], Answer], config: Mapping[str, Any]) -> None:
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
        """What `work()` returns, or what it awaits."""

        async def run() -> Any:
            done = work()
            return await done if inspect.isawaitable(done) else done

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    async def finish_in_a_hurry(self) -> None:
        self.acceptor.close()
        hurry = asyncio.Event()
        hurry.set()
        await self.connections.finish(hurry)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@contextmanager
def connected(answer: Callable[[memoryview, Client], Answer], **config: Any) -> Iterator[Connected]:
    """Options with underscores for dots."""
    served = Connected(answer, {name.replace("_", "."): value for name, value in config.items()})
    served.start()
    try:
        yield served
        served.on_loop(served.finish_in_a_hurry)
    finally:
        served.stop()


class ServedBroker:
    def __init__(self, broker: Broker, served: Connected) -> None:
        self.broker = broker
        self.on_loop = served.on_loop
        self.bootstrap_servers = served.bootstrap_servers


@contextmanager
def serving(
    directories: Sequence[Path],
    *,
    files: FileSystem = DISK,
    clock: Clock | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[ServedBroker]:
    """A broker whose upkeep runs only where the test asks for it."""
    broker = Broker(directories, BrokerConfig.parse(config or {}), files=files, clock=clock)
    told: list[Endpoint] = []  # known when the port is

    def answer(frame: memoryview, client: Client) -> Answer:
        return answer_of(broker, told[0], frame, client)

    served = Connected(answer, {})
    host, port = served.bootstrap_servers.rsplit(":", 1)
    told.append(Endpoint(host, int(port)))
    served.start()
    try:
        served.on_loop(broker.coordinator.loaded)
        yield ServedBroker(broker, served)
        served.on_loop(broker.stop_waiting)
        served.on_loop(served.finish_in_a_hurry)
    finally:
        served.on_loop(broker.close)
        served.stop()
