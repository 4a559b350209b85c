"""The broker: its state, and how it changes.

One asyncio loop owns everything here. A change is decided on the present state, appended to its
log and replayed in one go, without an `await` in between; what waits for the disk is then done by
threads, while the caller's answer waits and the loop goes on: logs are made and removed by one, in
the order it was asked for, and synced by others, so that records wait for their own log alone.

A partition whose log cannot be opened, or fails later, is offline; all others go on.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from pylog.broker_lite import event_log, identity
from pylog.broker_lite.catalogue import Catalogue
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.fetch_sessions import Sessions
from pylog.broker_lite.flushes import Flushes
from pylog.broker_lite.group_coordinator import GroupCoordinator, limits_of
from pylog.broker_lite.machines.offsets import Offsets
from pylog.broker_lite.machines.topics import CONSUMER_OFFSETS, Topic
from pylog.broker_lite.partition import Partition
from pylog.broker_lite.protocol import consumer_offsets
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.broker_lite.upkeep import Upkeep
from pylog.storage.disk import DISK
from pylog.storage.errors import StorageError
from pylog.storage.manager import LogManager
from pylog.storage.ports import Clock, FileSystem, SystemClock

if TYPE_CHECKING:
    from pylog.broker_lite.metrics.requests import RequestStats
    from pylog.broker_lite.throttling import Meters

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Broker:
    def __init__(
        self,
        directories: Sequence[Path],
        config: BrokerConfig,
        *,
        files: FileSystem = DISK,
        clock: Clock | None = None,
        open_files_max: int = 1 << 30,
    ) -> None:
        """Loads all that there is, which may take long, so any thread may do it. All else is the loop's, and begins
        with `coordinator.loaded()`."""
        self.node_id: int = config["node.id"]
        clock = clock or SystemClock()
        self.files = files
        self.now_ms = clock.now_ms
        self.requests: RequestStats | None = None  # where metrics are wanted
        self.meters: Meters | None = None  # where somebody has a quota
        self.offsets = Offsets(config["offset.metadata.max.bytes"])
        self.coordinator = GroupCoordinator(
            self.offsets, limits_of(config), self.coordinator_of, self.flush, self.now_ms
        )
        self.groups = self.coordinator.groups
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.appends: set[asyncio.Task[Any]] = set()  # of batches that wait for their turn
        self.news: dict[UUID, float] = {}  # topics that have just made themselves, and when they are told of
        self.fetch_sessions = Sessions(config["max.incremental.fetch.session.cache.slots"], self.now_ms)
        self.fetch_bytes_max: int = config["fetch.max.bytes"]
        self.is_closing = False
        self._offline: dict[tuple[str, int], Exception] = {}  # partitions whose logs could not be opened
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")
        self._flushes = Flushes(files.threads)
        self._logs = LogManager(
            directories,
            config.topic({}).log,
            files=files,
            clock=clock,
            open_files_max=open_files_max,
            dedupe_buffer_bytes=config["log.cleaner.dedupe.buffer.size"],
        )
        try:
            self.cluster_id = identity.agree(
                self._logs.directories, self.node_id, files, self._logs.offline_directories
            )
            self.catalogue = Catalogue(config, self._logs, self.partitions, self._offline, self._on_disk, self.now_ms)
            self.topics = self.catalogue.topics
            self._load()
        except BaseException:
            self._logs.close()
            raise
        self.upkeep = Upkeep(
            self._logs,
            lambda: self.config,
            self._on_disk,
            self._flushes.flush,
            expire_offsets=self.coordinator.expire,
        )

    @property
    def config(self) -> BrokerConfig:
        """What is in force now; some of it may change while the broker runs."""
        return self.catalogue.config

    # Start and stop

    def _load(self) -> None:
        """State is what the logs say."""
        for index in range(self._partition_count(CONSUMER_OFFSETS)):
            if (CONSUMER_OFFSETS, index) in self.partitions:
                self._load_groups(index)
        logger.info(
            "loaded: %d topics, %d partitions (%d more are offline), %d groups",
            len(self.topics.by_name),
            len(self.partitions),
            len(self._offline),
            len(self.groups.ids()),
        )

    def _load_groups(self, index: int) -> None:
        """Where commits cannot be read, their groups have no coordinator: it would give out old offsets."""
        try:
            for record in event_log.read(self.partitions[CONSUMER_OFFSETS, index].log):
                self.coordinator.replay(record)
        except (StorageError, MalformedFrame) as error:
            del self.partitions[CONSUMER_OFFSETS, index]
            self.catalogue.take_offline(CONSUMER_OFFSETS, index, error)
            self._lose_groups(index)

    def stop_waiting(self) -> None:
        """No request waits any longer: fetches are answered with what there is, members sent to look elsewhere."""
        self.is_closing = True
        self.coordinator.close()
        for partition in self.partitions.values():
            partition.look_again()

    async def close(self) -> None:
        self.stop_waiting()
        await asyncio.gather(*self.appends, return_exceptions=True)
        await self.upkeep.close()
        await self._flushes.close()
        await self._on_disk(self._logs.close)
        self._disk.shutdown()

    def _on_disk(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Done even if the client that asked for it has gone: what was decided is decided."""
        return asyncio.shield(asyncio.get_running_loop().run_in_executor(self._disk, work, *args))

    # Partitions

    def partition(self, topic: str, index: int) -> Partition:
        found = self.partitions.get((topic, index))
        if found is None or found.log.condition.failure is not None:
            failure = self._offline.get((topic, index)) if found is None else found.log.failure
            if failure is None:
                raise RequestError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic '{topic}'."
                )
            raise RequestError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {index} of topic '{topic}' is offline: {failure}"
            )
        return found

    def name_of(self, topic_id: bytes) -> str:
        name = self.topics.name_of(topic_id)
        if name is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {UUID(bytes=topic_id)}.")
        return name

    @property
    def directories(self) -> list[Path]:
        return self._logs.directories

    @property
    def offline_directories(self) -> list[Path]:
        return list(self._logs.offline_directories)

    async def delete_records(self, places: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
        """The starts of these logs have moved: when this is done they stay there, save for those that are returned.
        What lies wholly below them is removed."""
        await self._on_disk(self._logs.store_starts)
        kept = [place for place in places if self._logs.has_stored_start(*place)]
        await self._on_disk(self._logs.bury, self._logs.detach(kept))
        return [place for place in places if place not in kept]

    def exists(self, topic: str, index: int) -> bool:
        """Also where it is offline, or in the making."""
        return 0 <= index < self._partition_count(topic)

    def is_online(self, topic: str, index: int) -> bool:
        found = self.partitions.get((topic, index))
        return found is not None and found.log.failure is None

    def offline(self) -> dict[tuple[str, int], str]:
        """The partitions that cannot be used, and why."""
        reasons = {place: str(error) for place, error in self._offline.items()}
        for place, partition in self.partitions.items():
            if partition.log.failure is not None:
                reasons[place] = str(partition.log.failure)
        for name in self.catalogue.unmade & self.topics.by_name.keys():
            for index in range(self._partition_count(name)):
                if (name, index) not in self.partitions:
                    reasons.setdefault((name, index), "its log could not be made; that is tried again when it is used")
        return reasons

    @property
    def metadata_failure(self) -> Exception | None:
        """Where there is one, no topic can be made or deleted until the next start."""
        return self.catalogue.log.failure

    @property
    def logs(self) -> LogManager:
        """To be looked at only."""
        return self._logs

    def _partition_count(self, topic: str) -> int:
        return self.topics.by_name[topic].partition_count if topic in self.topics.by_name else 0

    def flush(self, partition: Partition) -> asyncio.Future[None]:
        """What is in the log now is on the disk, and committed, when this is done; it raises if it is not."""
        end_offset = partition.log.log_end_offset
        flushing = self._flushes.flush(partition.log)

        def flushed(done: asyncio.Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                partition.look_again()
            else:
                partition.flushed(end_offset)

        flushing.add_done_callback(flushed)  # also if nobody waits for it any more
        return asyncio.shield(flushing)

    # Topics

    async def create_topic(
        self, name: str, partition_count: int = -1, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        """Returns when the topic can be written to, and is there after a crash of the machine."""
        topic = self.catalogue.create(name, partition_count, overrides or {})
        await self.catalogue.made(topic.name)
        return topic

    async def topic_made(self, name: str) -> None:
        await self.catalogue.made(name)

    async def delete_topic(self, name: str | None, topic_id: UUID) -> Topic:
        topic, deleting = self.catalogue.delete(name, topic_id)
        if topic.name == CONSUMER_OFFSETS:
            self.coordinator.lost(self.groups.ids())
        self.coordinator.topic_deleted(topic.name)
        await deleting
        return topic

    # Groups and producers

    async def coordinator_ready(self) -> None:
        if CONSUMER_OFFSETS not in self.topics.by_name:
            self.catalogue.create(CONSUMER_OFFSETS, -1, {})
        await self.topic_made(CONSUMER_OFFSETS)

    def coordinator_of(self, group: str) -> Partition:
        """Where the group and its commits are kept; `coordinator_ready` was awaited before."""
        count = self._partition_count(CONSUMER_OFFSETS)
        index = consumer_offsets.partition_of_group(group, count) if count else 0
        if self.is_closing or not self.is_online(CONSUMER_OFFSETS, index):
            self._lose_groups(index)
            raise RequestError(
                ErrorCode.NOT_COORDINATOR, f"{CONSUMER_OFFSETS}-{index}, with the commits of '{group}', is offline."
            )
        return self.partitions[CONSUMER_OFFSETS, index]

    def _lose_groups(self, index: int) -> None:
        """Their partition of the log is lost, now or since long."""
        count = self._partition_count(CONSUMER_OFFSETS)
        kept_there = [one for one in self.groups.ids() if consumer_offsets.partition_of_group(one, count) == index]
        self.coordinator.lost(kept_there)

    def lose_offline_groups(self) -> None:
        """A log may have failed since somebody asked for a group that is kept there."""
        for index in range(self._partition_count(CONSUMER_OFFSETS)):
            if not self.is_online(CONSUMER_OFFSETS, index):
                self._lose_groups(index)

    async def new_producer_id(self) -> int:
        outcome = self.topics.next_producer_id()
        self.catalogue.change(outcome.events)
        self.topics.took_producer_id(outcome.reply)
        if outcome.events:
            await self.catalogue.flushed()
        return outcome.reply
