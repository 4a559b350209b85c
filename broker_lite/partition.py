"""One partition as the broker sees it: its log, and the fetches that wait for it to grow.

With one replica everything that is in the log is committed at once, save where `flush.messages` wants it on the disk
first: what a reader has seen is not taken back by a power cut then.
"""

import asyncio

from pylog.broker_lite.batch_demands import demands_of
from pylog.broker_lite.config import TopicConfig
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.log import Appended, PartitionLog
from pylog.storage.log_config import INT64_MAX


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
    def __init__(self, log: PartitionLog, config: TopicConfig, leader_epoch: int = 0) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.config = config
        self.demands = demands_of(config)
        self.waiters: set[Waiter] = set()
        self.turn: asyncio.Future[None] | None = None  # done when the last batch that waits for its turn is appended
        self.flushes = config.log.flush_messages < INT64_MAX  # some appends, before they are answered
        self._has_aborted: bool | None = None  # None: nobody has asked
        # For the metrics, since the start of the process.
        self.bytes_in = self.batches_in = self.bytes_out = 0

    def append(self, batches: bytearray | memoryview) -> Appended:
        """If `flush_is_due` after this, the records are committed by `flushed`, and answered after it."""
        log = self.log
        appended = log.append(batches, self.leader_epoch)
        _, last_offset, _, duplicate = appended
        if duplicate:
            return appended
        self.bytes_in += len(batches)
        self.batches_in += 1
        if not (self.flushes and log.flush_is_due):
            log.advance_high_watermark(last_offset + 1)
            for waiter in self.waiters:
                waiter.grew(len(batches))
        return appended

    def reconfigure(self, config: TopicConfig) -> None:
        """In force from the next append, fetch or round of upkeep on."""
        if config != self.config:
            self.config = config
            self.demands = demands_of(config)
            self.log.reconfigure(config.log)
            self.flushes = config.log.flush_messages < INT64_MAX

    @property
    def flush_is_due(self) -> bool:
        return self.flushes and self.log.flush_is_due

    @property
    def has_aborted(self) -> bool:
        """Whether there are aborted transactions. Most logs have none, and most consumers ask: the log is looked
        through once. Transactions cannot be written here yet, so what was found then stays true."""
        if self._has_aborted is None:
            log = self.log
            self._has_aborted = bool(log.aborted_transactions(log.log_start_offset, log.log_end_offset))
        return self._has_aborted

    def check_epoch(self, epoch: int) -> None:
        """-1: the client does not know one."""
        if epoch > self.leader_epoch:
            raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"Leader epoch {epoch} has not come yet.")
        if 0 <= epoch < self.leader_epoch:
            raise RequestError(
                ErrorCode.FENCED_LEADER_EPOCH, f"Leader epoch {epoch} is over; it is {self.leader_epoch} now."
            )

    def flushed(self, end_offset: int) -> None:
        """The records below `end_offset` are on the disk."""
        self.log.advance_high_watermark(end_offset)
        self.look_again()

    def look_again(self) -> None:
        """For the fetches that wait: there is more, or the topic is gone."""
        for waiter in self.waiters:
            waiter.wake()
