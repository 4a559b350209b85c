"""The broker: its state, and how it changes.

One asyncio loop owns everything here. A change is decided on the present state, appended to its
log and replayed in one go, without an `await` in between; what waits for the disk (fsync, making
and removing directories) is then done by one thread, in the order it was asked for, while the
caller's answer waits and the loop goes on.

A partition whose log cannot be opened, or fails later, is offline; all others go on.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID, uuid4

from pylog.broker_lite import event_log, identity
from pylog.broker_lite.config import BrokerConfig, ConfigError, TopicConfig
from pylog.broker_lite.errors import EXPECTED, RequestError
from pylog.broker_lite.group_coordinator import GroupCoordinator, limits_of
from pylog.broker_lite.machines.offsets import Offsets
from pylog.broker_lite.machines.topics import CLUSTER_METADATA, CONSUMER_OFFSETS, INTERNAL_TOPICS, Topic, Topics
from pylog.broker_lite.partition import Partition
from pylog.broker_lite.protocol import consumer_offsets, metadata_records
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.metadata_records import MetadataRecord
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.broker_lite.upkeep import Upkeep
from pylog.storage.disk import DISK
from pylog.storage.errors import LogOffline, StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.log_config import LogConfig
from pylog.storage.manager import LogManager
from pylog.storage.ports import Clock, FileSystem, SystemClock

if TYPE_CHECKING:
    from pylog.broker_lite.metrics.requests import RequestStats

T = TypeVar("T")

logger = logging.getLogger(__name__)

CLUSTER_METADATA_ID = UUID(int=1)  # Kafka's own
_METADATA_CONFIG = LogConfig(delete=False)  # what it says is said once


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
        self.config = config
        self.node_id: int = config["node.id"]
        clock = clock or SystemClock()
        self.files = files
        self.now_ms = clock.now_ms
        self.requests: RequestStats | None = None  # where metrics are wanted
        self.topics = Topics(self.node_id)
        self.offsets = Offsets(config["offset.metadata.max.bytes"])
        self.coordinator = GroupCoordinator(
            self.offsets, limits_of(config), self.coordinator_of, self.flush, self.now_ms
        )
        self.groups = self.coordinator.groups
        self.partitions: dict[tuple[str, int], Partition] = {}
        self._is_closing = False
        self._offline: dict[tuple[str, int], Exception] = {}  # partitions whose logs could not be opened
        self._making: dict[str, asyncio.Task[None]] = {}
        self._unmade: set[str] = set()  # topics whose directories could not be made, and are tried again
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")
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
            self._metadata_log = self._open_metadata_log()
            self._load()
        except BaseException:
            self._logs.close()
            raise
        self.upkeep = Upkeep(self._logs, config, self._on_disk, expire_offsets=self.coordinator.expire)

    # Start and stop

    def _open_metadata_log(self) -> PartitionLog:
        try:
            return self._logs.open(CLUSTER_METADATA, 0, CLUSTER_METADATA_ID, _METADATA_CONFIG)
        except (StorageError, OSError) as error:
            raise LogOffline(
                f"{CLUSTER_METADATA} cannot be opened, and without it no topic is known: {error}"
            ) from error

    def _load(self) -> None:
        """State is what the logs say."""
        for record in event_log.read(self._metadata_log):
            if record.value is not None:
                self.topics.replay(metadata_records.decode(record.value))
        self.topics.restarted()
        known = {
            (topic.name, index) for topic in self.topics.by_name.values() for index in range(topic.partition_count)
        }
        self._logs.sweep(known, self.topics.deleted_ids)
        for topic in self.topics.by_name.values():
            config = self._topic_config(topic)
            for index in range(topic.partition_count):
                try:
                    self.partitions[topic.name, index] = self._open(topic, index, config)
                except (StorageError, OSError) as error:
                    self._take_offline(topic.name, index, error)
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
            self._take_offline(CONSUMER_OFFSETS, index, error)
            self._lose_groups(index)

    def _take_offline(self, topic: str, index: int, error: Exception) -> None:
        logger.error("%s-%d is offline: %s", topic, index, error)
        self._offline[topic, index] = error

    async def close(self) -> None:
        self._is_closing = True
        self.coordinator.close()
        await self.upkeep.close()
        for partition in self.partitions.values():
            partition.look_again()
        await self._on_disk(self._logs.close)
        self._disk.shutdown()

    def _on_disk(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Done even if the client that asked for it has gone: what was decided is decided."""
        return asyncio.shield(asyncio.get_running_loop().run_in_executor(self._disk, work, *args))

    # Partitions

    def partition(self, topic: str, index: int) -> Partition:
        found = self.partitions.get((topic, index))
        if found is None or found.log.failure is not None:
            failure = self._offline.get((topic, index)) if found is None else found.log.failure
            if failure is None:
                raise RequestError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic '{topic}'."
                )
            raise RequestError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {index} of topic '{topic}' is offline: {failure}"
            )
        return found

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
        for name in self._unmade & self.topics.by_name.keys():
            for index in range(self._partition_count(name)):
                if (name, index) not in self.partitions:
                    reasons.setdefault((name, index), "its log could not be made; that is tried again when it is used")
        return reasons

    @property
    def metadata_failure(self) -> Exception | None:
        """Where there is one, no topic can be made or deleted until the next start."""
        return self._metadata_log.failure

    @property
    def logs(self) -> LogManager:
        """To be looked at only."""
        return self._logs

    def _partition_count(self, topic: str) -> int:
        return self.topics.by_name[topic].partition_count if topic in self.topics.by_name else 0

    def flush(self, partition: Partition) -> asyncio.Future[None]:
        """What is in the log now is on the disk, and committed, when this is done; it raises if it is not."""
        end_offset = partition.log.log_end_offset
        flushing = asyncio.get_running_loop().run_in_executor(self._disk, partition.log.flush)

        def flushed(done: asyncio.Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                partition.look_again()
            else:
                partition.flushed(end_offset)

        flushing.add_done_callback(flushed)  # also if nobody waits for it any more
        return asyncio.shield(flushing)

    # Topics

    def _change(self, events: list[MetadataRecord]) -> None:
        if events:
            event_log.append(
                self._metadata_log, [(None, metadata_records.encode(event)) for event in events], self.now_ms()
            )
        for event in events:
            self.topics.replay(event)

    async def create_topic(
        self, name: str, partition_count: int = -1, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        """Returns when the topic can be written to, and is there after a crash of the machine."""
        topic = self.decide_topic(name, partition_count, overrides or {})
        await self.topic_made(topic.name)
        return topic

    def decide_topic(
        self, name: str, partition_count: int, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> Topic:
        if partition_count == -1:
            internal = name == CONSUMER_OFFSETS
            partition_count = self.config["offsets.topic.num.partitions" if internal else "num.partitions"]
        if name in INTERNAL_TOPICS:
            overrides = {**self._internal_overrides(), **overrides}
        try:
            self.config.topic(overrides)
        except ConfigError as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from None
        outcome = self.topics.create(name, partition_count, overrides, uuid4())
        if not validate_only:
            self._change(outcome.events)
            self._start_making(self.topics.by_name[name])
            logger.info("topic '%s' is made, with %d partitions", name, outcome.reply.partition_count)
        return outcome.reply

    async def topic_made(self, name: str) -> None:
        """Returns when the topic's partitions are there; one whose disk failed is tried again."""
        if name in self._unmade and name in self.topics.by_name:
            self._start_making(self.topics.by_name[name])
        making = self._making.get(name)
        if making is not None:
            await asyncio.shield(making)

    def _start_making(self, topic: Topic) -> None:
        self._unmade.discard(topic.name)
        # asked for now, not when the task begins: a deletion that comes next must find its directories
        opening = self._on_disk(self._flush_and_open, topic)
        self._making[topic.name] = asyncio.get_running_loop().create_task(self._make(topic, opening))

    async def _make(self, topic: Topic, opening: asyncio.Future[list[Partition]]) -> None:
        try:
            logs = await opening
            if self.topics.by_id.get(topic.topic_id) is topic:  # it may have been deleted meanwhile
                self._install(topic, logs)
        except EXPECTED:
            self._unmade.add(topic.name)
            raise
        finally:
            if self._making.get(topic.name) is asyncio.current_task():
                del self._making[topic.name]

    def _flush_and_open(self, topic: Topic) -> list[Partition]:
        self._metadata_log.flush()
        config = self._topic_config(topic)
        return [self._open(topic, index, config, new=True) for index in range(topic.partition_count)]

    def _open(self, topic: Topic, index: int, config: TopicConfig, *, new: bool = False) -> Partition:
        return Partition(self._logs.open(topic.name, index, topic.topic_id, config.log, new=new), config)

    def _topic_config(self, topic: Topic) -> TopicConfig:
        overrides = topic.overrides
        if topic.name in INTERNAL_TOPICS:
            overrides = self._internal_overrides() | overrides
        try:
            return self.config.topic(overrides)
        except ConfigError as error:  # what the topic overrides does not go together with what the broker has now
            raise ConfigError(f"topic '{topic.name}': {error}") from None

    def _internal_overrides(self) -> dict[str, str]:
        """Small segments and short lives are for users' records, not for ours."""
        return {"cleanup.policy": "compact", "segment.bytes": str(self.config["offsets.topic.segment.bytes"])}

    def _install(self, topic: Topic, partitions: list[Partition]) -> None:
        for index, partition in enumerate(partitions):
            self.partitions[topic.name, index] = partition

    async def delete_topic(self, name: str | None, topic_id: UUID) -> Topic:
        outcome = self.topics.delete(name, topic_id)
        topic = outcome.reply
        self._change(outcome.events)
        logger.info("topic '%s' is deleted", topic.name)
        deleting = self._on_disk(self._flush_and_delete, topic)
        for index in range(topic.partition_count):
            self._offline.pop((topic.name, index), None)
            partition = self.partitions.pop((topic.name, index), None)
            if partition is not None:
                partition.look_again()
        self.coordinator.topic_deleted(topic.name)
        await deleting
        return topic

    def _flush_and_delete(self, topic: Topic) -> None:
        self._metadata_log.flush()
        self._logs.delete(topic.name, *range(topic.partition_count))

    # Groups and producers

    async def coordinator_ready(self) -> None:
        if CONSUMER_OFFSETS not in self.topics.by_name:
            self.decide_topic(CONSUMER_OFFSETS, -1, {})
        await self.topic_made(CONSUMER_OFFSETS)

    def coordinator_of(self, group: str) -> Partition:
        """Where the group and its commits are kept; `coordinator_ready` was awaited before."""
        count = self._partition_count(CONSUMER_OFFSETS)
        index = consumer_offsets.partition_of_group(group, count) if count else 0
        if self._is_closing or not self.is_online(CONSUMER_OFFSETS, index):
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
        self._change(outcome.events)
        self.topics.took_producer_id(outcome.reply)
        if outcome.events:
            await self._on_disk(self._metadata_log.flush)
        return outcome.reply
