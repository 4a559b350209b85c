"""What logs need from time to time: syncing, checkpoints, deletion, compaction, offsets that nobody wants any more.

Each is a round, which may be run at any time, and an interval at which it is. What changes a log runs on the loop,
what waits for a disk on the broker's disk thread or on those that sync, and the cleaner, which starts a process and
waits for it, in a thread of its own. A round that has begun is finished before `close` returns; only the cleaner, which
may take minutes, is stopped. An error is logged, and the round is run again when it is next due.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.config_types import INT64_MAX
from pylog.storage.compaction_job import CompactionJob
from pylog.storage.errors import StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.manager import LogManager

logger = logging.getLogger(__name__)

LOGS_A_TURN = 25  # to look at one takes some 50 microseconds, to shorten it ten times as long
LOOK_MS = 1000  # for sealed segments that are not on the disk, and for files whose time has come

Round = Callable[[], Awaitable[Any]]
OnDisk = Callable[..., "asyncio.Future[Any]"]


class Upkeep:
    def __init__(
        self,
        logs: LogManager,
        config: Callable[[], BrokerConfig],
        on_disk: OnDisk,
        flush: Callable[[PartitionLog], Awaitable[None]],
        wait_ms: Callable[[int], Awaitable[bool]] | None = None,
        expire_offsets: Round | None = None,
    ) -> None:
        """`config` is what is in force then. `wait_ms` waits for so long, and says whether it is time to stop."""
        self._logs = logs
        self._config = config
        self._on_disk = on_disk
        self._flush = flush
        self._wait_ms = wait_ms or self._stopped_within
        self._expire_offsets = expire_offsets
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._cleaner: ThreadPoolExecutor | None = None
        self._job: CompactionJob | None = None
        # For the metrics, since the start.
        self.failures: Counter[str] = Counter()  # by round
        self.compactions = 0

    def start(self) -> None:
        config = self._config()
        delay_ms = config["log.initial.task.delay.ms"]
        flush_ms = config["log.flush.scheduler.interval.ms"]
        if flush_ms == INT64_MAX:
            flush_ms = LOOK_MS
        self._begin(0, lambda: flush_ms, self.flush)
        if flush_ms > LOOK_MS:
            self._begin(0, lambda: LOOK_MS, self.flush_sealed)
        self._begin(delay_ms, self._option("log.flush.offset.checkpoint.interval.ms"), self.checkpoint)
        self._begin(delay_ms, self._option("log.retention.check.interval.ms"), self.delete)
        self._begin(delay_ms, lambda: LOOK_MS, self.remove_deleted)
        self._begin(0, self._option("log.cleaner.backoff.ms"), self.compact_all)
        if self._expire_offsets is not None:
            check_ms = self._option("offsets.retention.check.interval.ms")
            self._begin(check_ms(), check_ms, self._expire_offsets)

    def _option(self, name: str) -> Callable[[], int]:
        """It may change while the broker runs."""
        return lambda: int(self._config()[name])

    def _begin(self, delay_ms: int, interval_ms: Callable[[], int], work: Round) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._every(delay_ms, interval_ms, work)))

    async def _every(self, delay_ms: int, interval_ms: Callable[[], int], work: Round) -> None:
        told, wait_ms = "", delay_ms
        while not await self._wait_ms(wait_ms):
            wait_ms = interval_ms()
            try:
                await work()
                told = ""
            except (StorageError, OSError) as error:
                self.failures[work.__name__] += 1
                if str(error) != told:  # a disk that is gone says so every time
                    logger.error("%s failed: %s", work.__name__, error)
                    told = str(error)
            except Exception:
                self.failures[work.__name__] += 1
                logger.exception("%s failed", work.__name__)

    async def _stopped_within(self, wait_ms: int) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), max(wait_ms, 1) / 1000)
        return self._stopping.is_set()

    async def close(self) -> None:
        self._stopping.set()
        if self._job is not None:
            self._job.stop()
        await asyncio.gather(*self._tasks)
        if self._cleaner is not None:
            self._cleaner.shutdown()

    # -- the rounds

    async def flush(self) -> None:
        """`flush.ms` has passed, or a segment was sealed."""
        for log in await self._on_disk(self._logs.logs_to_flush):
            with contextlib.suppress(StorageError):  # it failed, and has said so; or it was deleted meanwhile
                await self._flush(log)

    async def flush_sealed(self) -> None:
        for log in await self._on_disk(self._logs.logs_to_flush):
            if log.has_sealed_unsynced:
                with contextlib.suppress(StorageError):
                    await self._flush(log)

    async def checkpoint(self) -> None:
        await self._on_disk(self._logs.checkpoint)

    async def delete(self) -> None:
        """Records that have had their time. That they are gone is on the disk before their files go."""
        await self._look_at_times()
        logs, moved = self._logs.items(), []
        for start in range(0, len(logs), LOGS_A_TURN):
            moved += self._logs.expire(logs[start : start + LOGS_A_TURN])
            await asyncio.sleep(0)
        if moved:
            await self._on_disk(self._logs.store_starts)
            doomed = []
            for start in range(0, len(moved), LOGS_A_TURN):
                doomed += self._logs.detach(moved[start : start + LOGS_A_TURN])
                await asyncio.sleep(0)
            await self._on_disk(self._logs.bury, doomed)

    async def _look_at_times(self) -> None:
        """After a start no segment's latest time is known. The disk thread waits for the disk, and the loop looks at
        one log a turn."""
        for log in await self._on_disk(self._logs.logs_to_look_at):
            self._logs.look_at_times(log)
            await asyncio.sleep(0)

    async def remove_deleted(self) -> None:
        await self._on_disk(self._logs.remove_buried)

    async def compact_all(self) -> None:
        while not self._stopping.is_set() and await self.compact():
            pass

    async def compact(self) -> bool:
        """The log that needs it most; False if none does. One that fails is left out for a while, so that the others
        have their turn."""
        await self._look_at_times()
        job = self._job = self._logs.next_compaction()
        if job is None:
            return False
        try:
            if self._cleaner is None:
                self._cleaner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cleaner")
            try:
                await asyncio.get_running_loop().run_in_executor(self._cleaner, job.clean)
            except (StorageError, OSError):  # which it has told
                return True
            if self._stopping.is_set() or not job.begin():
                await self._on_disk(job.discard)
            else:
                await self._on_disk(job.put_in_place)
                job.finish()
                self.compactions += 1
        except (StorageError, OSError):
            if any(log is job.log for _, log in self._logs.items()):
                raise  # it was not just deleted
        finally:
            self._job = None
        return True
