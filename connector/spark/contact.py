"""The first call to a cluster: whether anybody is there at all, before anything is planned."""

from dataclasses import replace

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig


def contact(config: ClientConfig, timeout_ms: int) -> None:
    """Returns when a broker has answered; its absence is an error after `timeout_ms`, not minutes later in a task."""
    cluster = Cluster.of(replace(config, default_api_timeout_ms=timeout_ms))
    cluster.retrying("looking for the cluster", cluster.refresh)
