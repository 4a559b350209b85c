"""The time that a client gives for its request. What was begun goes on behind it; only the answer does not wait."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.errors import ErrorCode

T = TypeVar("T")


class TimeLimit:
    def __init__(self, timeout_ms: int) -> None:
        self._end_s = asyncio.get_running_loop().time() + timeout_ms / 1000

    def check(self) -> None:
        """Before anything is begun: without time, as with Kafka, nothing is."""
        if asyncio.get_running_loop().time() >= self._end_s:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "There was no time left, and nothing was done.")

    async def wait_for(self, work: Awaitable[T]) -> T:
        """`work` is shielded by whoever made it."""
        limit = asyncio.timeout_at(self._end_s)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise  # the disk's own
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT, "It is decided, but was not finished in the time that the client gave."
            ) from None
