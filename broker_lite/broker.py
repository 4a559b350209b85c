"""The broker: its state, and how it changes.

One asyncio loop owns everything here. A change is decided on the present state, appended to its
log and replayed in one go, without an `await` in between; what waits for the disk (fsync, making
and removing directories) is then done by one thread, in the order it was asked for, while the
caller's answer waits and the loop goes on.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

from pylog.broker_lite import event_log
from pylog.broker_lite.config import BrokerConfig, ConfigError
from pylog.broker_lite.errors import EXPECTED, RequestError
from pylog.broker_lite.machines.offsets import OffsetEvent, Offsets
from pylog.broker_lite.machines.topics import CLUSTER_METADATA, CONSUMER_OFFSETS, INTERNAL_TOPICS, Topic, Topics
from pylog.broker_lite.partition import Partition
from pylog.broker_lite.protocol import consumer_offsets, metadata_records
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.metadata_records import MetadataRecord
from pylog.storage.disk import DISK
from pylog.storage.log import LogConfig
from pylog.storage.manager import LogManager

T = TypeVar("T")

CLUSTER_METADATA_ID = UUID(int=1)  # Kafka's own


class Broker:
    def __init__(self, directory: Path, config: BrokerConfig, now_ms: Callable[[], int] | None = None) -> None:
        self.config = config
        self.node_id: int = config["node.id"]
        self.host, self.port = "", 0  # the server says where it listens
        self.now_ms = now_ms or (lambda: int(time.time() * 1000))
        self.topics = Topics(self.node_id)
        self.offsets = Offsets(config["offset.metadata.max.bytes"])
        self.partitions: dict[tuple[str, int], Partition] = {}
        self._making: dict[str, asyncio.Task[None]] = {}
        self._unmade: set[str] = set()  # topics whose directories could not be made, and are tried again
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")
        self._logs = LogManager([directory], LogConfig())
        try:
            self.cluster_id = _cluster_id(directory, self.node_id)
            self._metadata_log = self._logs.open(CLUSTER_METADATA, 0, CLUSTER_METADATA_ID)
            self._load()
        except BaseException:
            self._logs.close()
            raise

    # Start and stop

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
            self._install(topic, self._open_logs(topic))
        for (name, _), partition in self.partitions.items():
            if name == CONSUMER_OFFSETS:
                for record in event_log.read(partition.log):
                    event = event_log.offset_event(record)
                    if event is not None:
                        self.offsets.replay(event)

    async def close(self) -> None:
        for partition in self.partitions.values():
            partition.gone()
        await self._on_disk(self._logs.close)
        self._disk.shutdown()

    def _on_disk(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Done even if the client that asked for it has gone: what was decided is decided."""
        return asyncio.shield(asyncio.get_running_loop().run_in_executor(self._disk, work, *args))

    def partition(self, topic: str, index: int) -> Partition:
        found = self.partitions.get((topic, index))
        if found is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic '{topic}'."
            )
        return found

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
        try:
            self.config.topic(overrides)
        except ConfigError as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from None
        outcome = self.topics.create(name, partition_count, overrides, uuid4())
        if not validate_only:
            self._change(outcome.events)
            self._start_making(self.topics.by_name[name])
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
        return self._open_logs(topic)

    def _open_logs(self, topic: Topic) -> list[Partition]:
        config = self.config.topic(topic.overrides)
        if topic.name in INTERNAL_TOPICS:  # small segments are for users' records, not for ours
            config = replace(config, log=LogConfig())
        return [
            Partition(self._logs.open(topic.name, partition, topic.topic_id, config.log), config)
            for partition in range(topic.partition_count)
        ]

    def _install(self, topic: Topic, partitions: list[Partition]) -> None:
        for index, partition in enumerate(partitions):
            self.partitions[topic.name, index] = partition

    async def delete_topic(self, name: str | None, topic_id: UUID) -> Topic:
        outcome = self.topics.delete(name, topic_id)
        topic = outcome.reply
        self._change(outcome.events)
        deleting = self._on_disk(self._flush_and_delete, topic)
        for index in range(topic.partition_count):
            partition = self.partitions.pop((topic.name, index), None)
            if partition is not None:
                partition.gone()
        for group, events in self.offsets.topic_deleted(topic.name).items():
            self.change_offsets(group, events)
        await deleting
        return topic

    def _flush_and_delete(self, topic: Topic) -> None:
        self._metadata_log.flush()
        for index in range(topic.partition_count):
            self._logs.delete(topic.name, index)

    # Groups and producers

    async def coordinator_ready(self) -> None:
        if CONSUMER_OFFSETS not in self.topics.by_name:
            self.decide_topic(CONSUMER_OFFSETS, -1, {})
        await self.topic_made(CONSUMER_OFFSETS)

    def change_offsets(self, group: str, events: list[OffsetEvent]) -> None:
        """Append and replay; `coordinator_ready` was awaited before."""
        if not events:
            return
        count = self.topics.by_name[CONSUMER_OFFSETS].partition_count
        partition = self.partitions[CONSUMER_OFFSETS, consumer_offsets.partition_of_group(group, count)]
        records = [event_log.offset_record(event) for event in events]
        partition.append(event_log.batch(records, self.now_ms()))
        for event in events:
            self.offsets.replay(event)

    async def new_producer_id(self) -> int:
        outcome = self.topics.next_producer_id()
        self._change(outcome.events)
        self.topics.took_producer_id(outcome.reply)
        if outcome.events:
            await self._on_disk(self._metadata_log.flush)
        return outcome.reply


def _cluster_id(directory: Path, node_id: int) -> str:
    """From `meta.properties`, which is written once, in Kafka's form."""
    file = directory / "meta.properties"
    if file.exists():
        properties = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
        if properties.get("node.id") != str(node_id):
            raise ConfigError(
                f"node.id={node_id}: {directory} belongs to node {properties.get('node.id')}; "
                f"set node.id={properties.get('node.id')} or use another directory"
            )
        return properties["cluster.id"]
    cluster_id, directory_id = (base64.urlsafe_b64encode(uuid4().bytes)[:22].decode() for _ in range(2))
    text = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={directory_id}\n"
    DISK.replace(file, text.encode(), durable=True)
    return cluster_id
