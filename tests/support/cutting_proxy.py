"""A TCP proxy before a broker that cuts connections around produce requests: before the broker has one, in its middle,
or when its answer has come and the client has not seen it.

All other requests and their answers pass. One request of a connection is under way at a time, as the broker has it."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

import pylog
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_ports

PRODUCE_KEY = 0
BEFORE, MIDDLE, BEHIND = "before", "middle", "behind"
CUTS = {BEFORE: 0.1, MIDDLE: 0.1, BEHIND: 0.4}  # of the produce requests


class CuttingProxy:
    """Clients connect to `port`; `target_port` is the broker's."""

    def __init__(self, seed: int) -> None:
        self.cuts: Counter[str] = Counter()
        self.target_port = 0
        self._chance = random.Random(seed)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, sock=self._socket), self._loop).result(30)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _cancel_all(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            try:
                while await self._pass_one(reader, writer, to_reader, to_writer):
                    pass
            finally:
                to_writer.close()
                writer.close()

    async def _pass_one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_reader: asyncio.StreamReader,
        to_writer: asyncio.StreamWriter,
    ) -> bool:
        """A request and its answer; False: it was cut."""
        request = await _frame(reader)
        cut = self._choose(request)
        self.cuts[cut or "passed"] += cut is not None or _is_produce(request)
        if cut == BEFORE:
            return False
        to_writer.write(request[: len(request) // 2] if cut == MIDDLE else request)
        await to_writer.drain()
        if cut == MIDDLE:
            return False
        answer = await _frame(to_reader)
        if cut == BEHIND:
            return False
        writer.write(answer)
        await writer.drain()
        return True

    def _choose(self, request: bytes) -> str | None:
        if not _is_produce(request):
            return None
        drawn = self._chance.random()
        for cut, share in CUTS.items():
            if drawn < share:
                return cut
            drawn -= share
        return None


def _is_produce(request: bytes) -> bool:
    return bool(struct.unpack_from(">h", request, 4)[0] == PRODUCE_KEY)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """With its size."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">i", head)[0])


@contextlib.contextmanager
def broker_behind_a_proxy(seed: int) -> Iterator[tuple[pylog.Broker, CuttingProxy]]:
    """The broker has a listener of its own for the proxy, whose clients are told to come back by it; all others are
    left in peace."""
    proxy = CuttingProxy(seed)
    (proxy.target_port,) = free_ports(1)
    config = {
        "listeners": f"DIRECT://127.0.0.1:0,CUT://127.0.0.1:{proxy.target_port}",
        "advertised.listeners": f"CUT://127.0.0.1:{proxy.port}",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,CUT:PLAINTEXT",
    }
    with pylog.Broker(config=config) as broker:
        proxy.start()
        try:
            yield broker, proxy
        finally:
            proxy.stop()


class _KafkaBehindAProxy(ApacheKafka):
    def __init__(self, proxy: CuttingProxy) -> None:
        super().__init__(listeners=["CUT"])
        direct, proxy.target_port, controller = free_ports(3)
        self._ports = {"PLAINTEXT": direct, "CUT": proxy.target_port, "CONTROLLER": controller}
        self._properties = {
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers},CUT://127.0.0.1:{proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def prepare(self) -> None:
        if not self.data.exists():
            self._format()


@contextlib.contextmanager
def kafka_behind_a_proxy(seed: int) -> Iterator[tuple[ApacheKafka, CuttingProxy]]:
    """The same with an Apache Kafka."""
    proxy = CuttingProxy(seed)
    with _KafkaBehindAProxy(proxy) as kafka:
        proxy.start()
        try:
            yield kafka, proxy
        finally:
            proxy.stop()
