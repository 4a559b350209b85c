"""What is served on `--metrics HOST:PORT`: /metrics for Prometheus, /health for people, and for whoever starts, stops
and routes: /health/live, /health/ready."""

import json
from collections.abc import AsyncIterator
from http import HTTPStatus

from pylog.broker_lite.health import Health
from pylog.broker_lite.metrics import text
from pylog.broker_lite.metrics.collect import Collector
from pylog.broker_lite.metrics.http import HttpServer, Page, text_page


class Pages:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._collector = Collector(health)
        self._server = HttpServer(
            {
                "/metrics": self._metrics,
                "/health": self._report,
                "/health/live": self._live,
                "/health/ready": self._ready,
            }
        )

    async def start(self, host: str, port: int) -> int:
        return await self._server.start(host, port)

    async def close(self) -> None:
        await self._server.close()
        self._collector.close()

    def _metrics(self) -> Page:
        pieces: AsyncIterator[str] = self._collector.pieces()
        return Page(HTTPStatus.OK, text.CONTENT_TYPE, pieces)

    def _report(self) -> Page:
        report = self._health.report()
        status = HTTPStatus.OK if report["ready"] else HTTPStatus.SERVICE_UNAVAILABLE
        return text_page(status, json.dumps(report, indent=2) + "\n", "application/json")

    def _live(self) -> Page:
        return text_page(HTTPStatus.OK, "alive\n")

    def _ready(self) -> Page:
        reason = self._health.not_ready_because()
        if reason is None:
            return text_page(HTTPStatus.OK, "ready\n")
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n")
