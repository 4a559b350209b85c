"""The driver's calls to a cluster: whether anybody is there at all, and offsets that are looked up with patience."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import Retriable

T = TypeVar("T")
_log = logging.getLogger(__name__)


def contact(config: ClientConfig, timeout_ms: int) -> None:
    """Returns when a broker has answered; its absence is an error after `timeout_ms`, not minutes later in a task."""
    hasty = replace(
        config,
        default_api_timeout_ms=timeout_ms,
        request_timeout_ms=_shorter(config.request_timeout_ms, ClientConfig.request_timeout_ms, timeout_ms),
        socket_connection_setup_timeout_ms=_shorter(
            config.socket_connection_setup_timeout_ms, ClientConfig.socket_connection_setup_timeout_ms, timeout_ms
        ),
    )
    cluster = Cluster.of(hasty)
    cluster.retrying("looking for the cluster", cluster.refresh)


def _shorter(value_ms: int, default_ms: int, timeout_ms: int) -> int:
    """What a user has set is left."""
    return min(value_ms, timeout_ms) if value_ms == default_ms else value_ms


def look_up(ask: Callable[[], T], attempts: int, pause_ms: int) -> T:
    """What `ask` returns. It is tried again when it fails for a cause that may pass; each attempt has in itself all
    of `default.api.timeout.ms`."""
    for attempt in range(1, attempts):
        try:
            return ask()
        except Retriable as error:
            _log.warning("looking up offsets, attempt %d of %d: %s", attempt, attempts, error)
            time.sleep(pause_ms / 1000)
    return ask()
