"""One partition as the broker sees it: its log, and the fetches that wait for it to grow."""

import asyncio

from pylog.broker_lite.config import TopicConfig
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.log import Appended, PartitionLog

LEADER_EPOCH = 0  # one node: it has led from the beginning


class Waiter:
    """A fetch that waits until `missing_bytes` were appended to any of its partitions."""

    __slots__ = ("missing_bytes", "woken")

    def __init__(self, missing_bytes: int) -> None:
        self.missing_bytes = missing_bytes
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def grew(self, count_bytes: int) -> None:
        self.missing_bytes -= count_bytes
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Partition:
    def __init__(self, log: PartitionLog, config: TopicConfig) -> None:
        self.log = log
        self.config = config
        self.waiters: set[Waiter] = set()

    def append(self, batches: bytearray | memoryview) -> Appended:
        appended = self.log.append(batches, LEADER_EPOCH)
        for waiter in self.waiters:
            waiter.grew(len(batches))
        return appended

    def gone(self) -> None:
        """The topic was deleted: whoever waits looks again, and finds out."""
        for waiter in self.waiters:
            waiter.wake()


def check_epoch(epoch: int) -> None:
    """-1: the client does not know one."""
    if epoch > LEADER_EPOCH:
        raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"Leader epoch {epoch} has not come yet.")
