"""The broker as seen from outside while it starts, runs and stops: `--metrics HOST:PORT` where it was asked for.

The pages are there before the broker is, and after it. Where nobody asked, nothing is loaded, counted or timed.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.client import Client
from pylog.broker_lite.config import ConfigError
from pylog.broker_lite.connection import Answer
from pylog.broker_lite.connections import Connections
from pylog.broker_lite.health import Health, Phase

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

Answerer = Callable[[memoryview, Client], Answer]

logger = logging.getLogger(__name__)


class Watch:
    def __init__(self, *, wanted: bool) -> None:
        self.health = Health()
        self._wanted = wanted

    def loaded(self, broker: "Broker") -> None:
        self.health.broker = broker
        if self._wanted:
            from pylog.broker_lite.metrics.requests import RequestStats

            broker.requests = RequestStats(API_BY_KEY)

    def measured(self, answer: Answerer) -> Answerer:
        broker = self.health.broker
        return answer if broker is None or broker.requests is None else broker.requests.measured(answer)

    def running(self, connections: Connections) -> None:
        """Listeners accept."""
        self.health.connections = connections
        self.health.phase = Phase.RUNNING

    def stopping(self) -> None:
        self.health.phase = Phase.STOPPING


def parse_address(text: str) -> tuple[str, int]:
    """Nobody is told this one, so it may be a wildcard: `0.0.0.0:9100`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"--metrics {text}: must be host:port, such as 127.0.0.1:9100 (port 0 picks a free one)")
    return host, int(port)


@asynccontextmanager
async def watched(address: tuple[str, int] | None, ready: Callable[[str], None]) -> AsyncIterator[Watch]:
    """`ready` is told the URL of the pages."""
    watch = Watch(wanted=address is not None)
    if address is None:
        yield watch
        return
    from pylog.broker_lite.metrics.pages import Pages

    pages = Pages(watch.health)
    host, port = address
    try:
        port = await pages.start(host, port)
    except OSError as error:
        raise OSError(error.errno, f"--metrics {host}:{port}: {error.strerror or error}") from error
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    logger.info("metrics and health are at %s", url)
    ready(url)
    try:
        yield watch
    finally:
        await pages.close()
