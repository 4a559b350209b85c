"""Metadata, key 3. Asking for a topic by name creates it where auto-creation is on."""

import contextlib
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.machines.topics import INTERNAL_TOPICS, NEVER_AUTO_CREATED, Topic, check_name
from pylog.broker_lite.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.metadata import (
    IDS_SINCE,
    OPERATIONS_NOT_ASKED_FOR,
    SPEC,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pylog.broker_lite.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: MetadataRequest, request: Request) -> MetadataResponse:
    asked = message.topics
    if asked is None or (request.version == 0 and not asked):
        asked = [MetadataRequestTopic(name=name) for name in sorted(broker.topics.by_name)]
    topics = await _topics(broker, asked, message, request.version)
    everything = message.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[MetadataResponseBroker(broker.node_id, *request.endpoint, broker.config["broker.rack"])],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if everything else OPERATIONS_NOT_ASKED_FOR,
    )


async def _topics(
    broker: "Broker", asked: list[MetadataRequestTopic], message: MetadataRequest, version: int
) -> list[MetadataResponseTopic]:
    """Each once: by id, if there is one, else by name. v10 and v11 have a field for the id, which nobody may use."""
    ids = list(dict.fromkeys(topic.topic_id for topic in asked if topic.name is None or topic.topic_id != ZERO_UUID))
    if ids and version < IDS_SINCE:
        return [MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in asked]
    if ids:
        asked = [MetadataRequestTopic(topic_id, None) for topic_id in ids]
    else:
        asked = [MetadataRequestTopic(name=name) for name in dict.fromkeys(topic.name for topic in asked)]
    return [await _topic(broker, topic, message) for topic in asked]


async def _topic(broker: "Broker", asked: MetadataRequestTopic, message: MetadataRequest) -> MetadataResponseTopic:
    if asked.name is None:
        topic = broker.topics.by_id.get(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
    else:
        try:
            topic = await _by_name(broker, asked.name, create=message.allow_auto_topic_creation)
        except EXPECTED as error:
            return MetadataResponseTopic(error_of(error)[0], asked.name, ZERO_UUID)
    with contextlib.suppress(*EXPECTED):  # what could not be made is told with the partitions
        await broker.topic_made(topic.name)
    operations = TOPIC_OPERATIONS if message.include_topic_authorized_operations else OPERATIONS_NOT_ASKED_FOR
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, topic, index) for index in range(topic.partition_count)],
        topic_authorized_operations=operations,
    )


async def _by_name(broker: "Broker", name: str, *, create: bool) -> Topic:
    topic = broker.topics.by_name.get(name)
    if topic is not None:
        return topic
    check_name(name)
    if name in NEVER_AUTO_CREATED or not (create and broker.config["auto.create.topics.enable"]):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return await broker.create_topic(name)


def _partition(broker: "Broker", topic: Topic, index: int) -> MetadataResponsePartition:
    there = broker.is_online(topic.name, index)
    node = broker.node_id
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if there else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=node if there else -1,
        leader_epoch=topic.leader_epoch,
        replica_nodes=[node],
        isr_nodes=[node],
        offline_replicas=[] if there else [node],
    )


API = declared(SPEC, handle)
