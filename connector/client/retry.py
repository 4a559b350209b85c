"""When to try again: after a pause that doubles and wavers, until the time or the retries are used up."""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import Retriable

T = TypeVar("T")
_log = logging.getLogger(__name__)
_QUIET_ATTEMPTS = 3  # a leader that moves costs one or two; more than that is worth a line in the log


class Retry:
    """The attempts of one call. `pause` sleeps before the next one, or raises when there is none."""

    def __init__(self, config: ClientConfig, what: str, timeout_ms: int) -> None:
        self._config = config
        self._what = what
        self._timeout_ms = timeout_ms
        self.progressed()

    def progressed(self) -> None:
        """Something succeeded: time, retries and pauses begin anew."""
        self._failures = 0
        self._started = time.monotonic()

    @property
    def waited_ms(self) -> int:
        return int((time.monotonic() - self._started) * 1000)

    def pause(self, error: Retriable) -> None:
        self._failures += 1
        left_ms = self._timeout_ms - self.waited_ms
        if left_ms <= 0 or self._failures > self._config.retries:
            error.add_note(f"{self._what}: given up after {self._failures} attempts in {self.waited_ms} ms")
            raise error
        if self._failures > _QUIET_ATTEMPTS:
            _log.warning("%s: %s; trying for another %.1f s", self._what, error, left_ms / 1000)
        time.sleep(min(left_ms, backoff_ms(self._config, self._failures)) / 1000)


def backoff_ms(config: ClientConfig, failures: int) -> float:
    """The pause after so many failures in a row; it wavers by a fifth, so that clients do not come back all at once."""
    doubled = config.retry_backoff_ms << min(failures - 1, 20)
    return min(doubled, config.retry_backoff_max_ms) * random.uniform(0.8, 1.2)


def retrying(config: ClientConfig, what: str, attempt: Callable[[], T], on_failure: Callable[[], None]) -> T:
    """What `attempt` returns; after each Retriable it raises, `on_failure` and a pause."""
    retry = Retry(config, what, config.default_api_timeout_ms)
    while True:
        try:
            return attempt()
        except Retriable as error:
            on_failure()
            retry.pause(error)
