"""A query's offsets in the cluster, under the name of a group, so that its lag shows in every tool.

The checkpoint is the truth; what is committed here follows it. A commit that fails is a warning and never the query's
end: the next one brings the offsets along. A query holds up for it a tenth of its time at most.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import ClientError
from pylog.connector.spark.offsets import Offsets

_log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000
_PAUSE_FACTOR = 10  # a failure that took a second is followed by ten without an attempt


class GroupCommits:
    """Of one run of a query."""

    def __init__(self, client: ClientConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = replace(client, default_api_timeout_ms=min(COMMIT_TIMEOUT_MS, client.default_api_timeout_ms))
        self._clock = clock
        self._committed: Offsets = {}
        self._not_before = float("-inf")

    def forget(self, topics: Collection[str]) -> None:
        """They are gone, or were made anew: what was committed of them does not hold for others of their names."""
        if topics:
            self._committed = {place: offset for place, offset in self._committed.items() if place[0] not in topics}

    def commit(self, group: str, done: Offsets) -> None:
        changed = {place: offset for place, offset in done.items() if self._committed.get(place) != offset}
        started = self._clock()
        if not changed or started < self._not_before:
            return
        try:
            Cluster.of(self._client).commit_offsets(group, changed)
        except ClientError as error:
            _log.warning("the offsets of the group %r were not committed: %s", group, error)
            now = self._clock()
            self._not_before = now + _PAUSE_FACTOR * (now - started)
        else:
            self._committed.update(changed)
