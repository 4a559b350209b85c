"""The topics and the configuration, as `__cluster_metadata` says them, and the logs that follow from it.

A change is decided, appended and replayed in one go, and is in force at once. Whoever asked for it is answered when it
is on the disk. Directories are made after that: a topic is there before its logs are.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from pylog.broker_lite import event_log
from pylog.broker_lite.config import BrokerConfig, ConfigError, TopicConfig, check_group
from pylog.broker_lite.config_types import show
from pylog.broker_lite.errors import EXPECTED, RequestError
from pylog.broker_lite.log_work import LogWork
from pylog.broker_lite.machines.topics import CLUSTER_METADATA, CONSUMER_OFFSETS, INTERNAL_TOPICS, Topic, Topics
from pylog.broker_lite.partition import Partition
from pylog.broker_lite.protocol import metadata_records
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.metadata_records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataRecord
from pylog.broker_lite.topic_rows import TOPIC_ROW
from pylog.broker_lite.turns import Turn
from pylog.storage.errors import LogOffline, StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.log_config import LogConfig
from pylog.storage.manager import LogManager, Wanted

logger = logging.getLogger(__name__)

CLUSTER_METADATA_ID = UUID(int=1)  # Kafka's own
_MADE_AT_ONCE = 100  # partitions, before others may have their turn
_METADATA_CONFIG = LogConfig(delete=False)  # what it says is said once

Place = tuple[str, int]
OnDisk = Callable[..., "asyncio.Future[Any]"]


class Catalogue:
    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        partitions: dict[Place, Partition],
        offline: dict[Place, Exception],
        on_disk: OnDisk,
        now_ms: Callable[[], int],
    ) -> None:
        """`partitions` and `offline` are filled here: those that can be used, and those whose logs cannot be opened."""
        self.config = config  # another one after each change: who keeps it misses that
        self.topics = Topics(config["node.id"])
        self.unmade: set[str] = set()  # topics whose directories could not be made, and are tried again
        self._node = str(config["node.id"])
        self._logs = logs
        self._partitions = partitions
        self._offline = offline
        self._on_disk = on_disk
        self._now_ms = now_ms
        self._making: dict[str, asyncio.Task[None]] = {}
        crashed = logs.has_unrecovered
        try:
            self.log = logs.open(CLUSTER_METADATA, 0, CLUSTER_METADATA_ID, _METADATA_CONFIG)
        except (StorageError, OSError) as error:
            raise LogOffline(
                f"{CLUSTER_METADATA} cannot be opened, and without it no topic is known: {error}"
            ) from error
        self._work = LogWork(logs, self.log.flush, on_disk)
        self._load(crashed=crashed)

    def _load(self, *, crashed: bool) -> None:
        for record in event_log.read(self.log):
            if record.value is not None:
                self.topics.replay(metadata_records.decode(record.value))
        self.topics.restarted()
        if crashed:
            self._begin_epochs()
        self._use(self._changed_config(self.topics.broker_overrides))
        configs = {name: self._topic_config(topic) for name, topic in self.topics.by_name.items()}
        wanted = [
            Wanted((topic.name, index), topic.topic_id, configs[topic.name].log)
            for topic in self.topics.by_name.values()
            for index in range(topic.partition_count)
        ]
        self._logs.sweep({one.key for one in wanted}, self.topics.deleted_ids)
        for one, opened in zip(wanted, self._logs.open_all(wanted, new=False), strict=True):
            if isinstance(opened, Exception):
                self.take_offline(*one.key, opened)
            else:
                self._partitions[one.key] = Partition(
                    opened, configs[one.key[0]], self.topics.by_name[one.key[0]].leader_epoch
                )

    def _begin_epochs(self) -> None:
        """On a full disk they are begun all the same: there may be room before the next start."""
        events = self.topics.crashed(uuid4()).events
        try:
            if events:
                self._append(events)
            self.log.flush()
        except (StorageError, OSError) as error:
            logger.error("the leader epochs of this start are not on the disk: %s", error)
        for event in events:
            self.topics.replay(event)

    def take_offline(self, topic: str, index: int, error: Exception) -> None:
        logger.error("%s-%d is offline: %s", topic, index, error)
        self._offline[topic, index] = error

    def change(self, events: list[MetadataRecord]) -> None:
        """If it raises, nothing has happened. To be answered after `flushed`."""
        if events:
            self._append(events)
        for event in events:
            self.topics.replay(event)

    def _append(self, events: list[MetadataRecord]) -> None:
        event_log.append(self.log, [(None, metadata_records.encode(event)) for event in events], self._now_ms())

    def flushed(self) -> Awaitable[None]:
        """What was changed until now is on the disk then."""
        return self._on_disk(self.log.flush)

    # Topics

    def create(
        self, name: str, partition_count: int, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> Topic:
        if partition_count == -1:
            internal = name == CONSUMER_OFFSETS
            partition_count = self.config["offsets.topic.num.partitions" if internal else "num.partitions"]
        if name in INTERNAL_TOPICS:
            overrides = {**self._internal_overrides(), **overrides}
        self.check_options(overrides)
        shown = {option: _canonical(option, value) for option, value in overrides.items()}
        outcome = self.topics.create(name, partition_count, shown, uuid4())
        if not validate_only:
            self.change(outcome.events)
            self._start_making(self.topics.by_name[name])
            logger.info("topic '%s' is made, with %d partitions", name, partition_count)
        return outcome.reply

    def check_options(self, overrides: Mapping[str, str]) -> None:
        """Whether a topic may have these."""
        try:
            self.config.topic(overrides)
        except ConfigError as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def add_partitions(self, name: str, partition_count: int, *, validate_only: bool = False) -> None:
        if name in INTERNAL_TOPICS:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"{name} keeps its partitions: by their number each group finds its own."
            )
        outcome = self.topics.add_partitions(name, partition_count)
        if not validate_only:
            self.change(outcome.events)
            self._start_making(outcome.reply)
            logger.info("topic '%s' has %d partitions now", name, partition_count)

    def delete(self, name: str | None, topic_id: UUID) -> tuple[Topic, Awaitable[Any]]:
        """The topic is gone now; its directories are when the second is done."""
        outcome = self.topics.delete(name, topic_id)
        topic = outcome.reply
        self.change(outcome.events)
        logger.info("topic '%s' is deleted", topic.name)
        places = [(topic.name, index) for index in range(topic.partition_count)]
        deleting = asyncio.shield(self._work.delete(places))
        for place in places:
            self._offline.pop(place, None)
            partition = self._partitions.pop(place, None)
            if partition is not None:
                partition.look_again()
        return topic, deleting

    async def made(self, name: str) -> None:
        """Returns when the topic's partitions are there; one whose disk failed is tried again."""
        if name in self.unmade and name in self.topics.by_name:
            self._start_making(self.topics.by_name[name])
        making = self._making.get(name)
        if making is not None:
            await asyncio.shield(making)

    def _start_making(self, topic: Topic) -> None:
        """Those of its partitions that are not there."""
        self.unmade.discard(topic.name)
        config = self._topic_config(topic)
        places = [(topic.name, index) for index in range(topic.partition_count)]
        missing = [place for place in places if place not in self._partitions and place not in self._offline]
        opening = self._work.make([Wanted(place, topic.topic_id, config.log) for place in missing])
        task = asyncio.get_running_loop().create_task(self._make(topic, missing, opening))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
        self._making[topic.name] = task

    async def _make(
        self, topic: Topic, places: list[Place], opening: "asyncio.Future[list[PartitionLog | Exception]]"
    ) -> None:
        try:
            failure = None
            all_opened = await opening
            turn = Turn()
            for first in range(0, len(places), _MADE_AT_ONCE):
                if self.topics.by_id.get(topic.topic_id) is not topic:
                    return  # it was deleted meanwhile
                config = self._topic_config(topic)  # it may have changed meanwhile
                some = slice(first, first + _MADE_AT_ONCE)
                for place, opened in zip(places[some], all_opened[some], strict=True):
                    if isinstance(opened, Exception):
                        failure = opened
                    else:
                        opened.reconfigure(config.log)
                        self._partitions.setdefault(place, Partition(opened, config, topic.leader_epoch))
                await turn.pause()
            if failure is not None:
                raise failure
        except EXPECTED:
            self.unmade.add(topic.name)
            raise
        finally:
            if self._making.get(topic.name) is asyncio.current_task():
                del self._making[topic.name]

    # Configuration

    def configure(
        self, resource_type: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Of a topic that is there, of this broker by its id, of all brokers (""), or of a group; None gives back to
        the default. ConfigError: it cannot be so, and stays as it is."""
        overrides = {**self.topics.overrides_of(resource_type, name), **changes}
        kept = {option: value for option, value in overrides.items() if value is not None}
        if resource_type == TOPIC_RESOURCE:
            self._configure_topic(self.topics.by_name[name], kept, changes, validate_only)
        elif resource_type == GROUP_RESOURCE:
            check_group(kept)
            if not validate_only:
                self.change(self.topics.configure(GROUP_RESOURCE, name, changes).events)
        else:
            self._configure_broker(name, kept, changes, validate_only)

    def _configure_topic(
        self, topic: Topic, kept: Mapping[str, str], changes: Mapping[str, str | None], validate_only: bool
    ) -> None:
        config = self.config.topic(self._overrides(topic.name, kept))
        if not validate_only:
            self.change(self.topics.configure(TOPIC_RESOURCE, topic.name, changes).events)
            self._reconfigure(topic, config)

    def _configure_broker(
        self, name: str, kept: Mapping[str, str], changes: Mapping[str, str | None], validate_only: bool
    ) -> None:
        config = self._changed_config({**self.topics.broker_overrides, name: kept})
        known: dict[frozenset[tuple[str, str]], TopicConfig] = {}  # most topics have the same
        configs = []
        for topic in self.topics.by_name.values():  # all go together with it, or it is not
            overrides = frozenset(self.overrides(topic).items())
            if overrides not in known:
                known[overrides] = self._topic_config(topic, config)
            configs.append((topic, known[overrides]))
        if not validate_only:
            self.change(self.topics.configure(BROKER_RESOURCE, name, changes).events)
            self._use(config)
            for topic, topic_config in configs:
                self._reconfigure(topic, topic_config)

    def _changed_config(self, overrides: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        return self.config.changed(cluster=overrides.get("", {}), node=overrides.get(self._node, {}))

    def _use(self, config: BrokerConfig) -> None:
        self.config = config
        self._logs.dedupe_buffer_bytes = config["log.cleaner.dedupe.buffer.size"]

    def _reconfigure(self, topic: Topic, config: TopicConfig) -> None:
        for index in range(topic.partition_count):
            partition = self._partitions.get((topic.name, index))
            if partition is not None:
                partition.reconfigure(config)

    def _topic_config(self, topic: Topic, config: BrokerConfig | None = None) -> TopicConfig:
        try:
            return (config or self.config).topic(self.overrides(topic))
        except ConfigError as error:  # what the topic overrides does not go together with what the broker has now
            raise ConfigError(f"topic '{topic.name}': {error}") from None

    def overrides(self, topic: Topic) -> Mapping[str, str]:
        return self._overrides(topic.name, topic.overrides)

    def _overrides(self, name: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
        return {**self._internal_overrides(), **overrides} if name in INTERNAL_TOPICS else overrides

    def _internal_overrides(self) -> dict[str, str]:
        """Small segments and short lives are for users' records, not for ours."""
        return {"cleanup.policy": "compact", "segment.bytes": str(self.config["offsets.topic.segment.bytes"])}


def _canonical(option: str, value: str) -> str:
    """As it is shown, however it was written."""
    return show(TOPIC_ROW[option].parse(value)) or ""
