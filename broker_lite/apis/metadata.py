"""Metadata, key 3. Asking for a topic by name creates it where auto-creation is on. Who asked is told, as by Kafka,
that there is none, and asks again. A moment later the topic is told of, when it can be used."""

import contextlib
import time
from typing import TYPE_CHECKING
from uuid import UUID

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.machines.topics import (
    CLUSTER_METADATA,
    INTERNAL_TOPICS,
    NEVER_AUTO_CREATED,
    PARTITIONS_AT_ONCE_MAX,
    Topic,
    check_name,
)
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
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

# A topic that makes itself is not told of before. Kafka takes as long, and there are clients that ask again after 10 ms
# and want to hear the same; most do after 100 ms.
NEWS_AFTER_SECONDS = 0.05

_INTERNAL_TO_KAFKA = (INTERNAL_TOPICS | NEVER_AUTO_CREATED) - {CLUSTER_METADATA}

# Each once, and in order.
_Names = dict[str | None, None]
_Ids = dict[UUID, None]


async def handle(broker: "Broker", message: MetadataRequest, request: Request) -> MetadataResponse:
    turn = Turn()
    operations = TOPIC_OPERATIONS if message.include_topic_authorized_operations else OPERATIONS_NOT_ASKED_FOR
    if message.topics is None or (request.version == 0 and not message.topics):
        topics = await _all(broker, operations, turn)
    else:
        names, ids = await _asked(message.topics, turn)
        if error := _impossible(names, ids, request.version):
            return await _refused(message.topics, error, turn)
        if ids:
            topics = await _with_ids(broker, ids, operations, turn)
        else:
            topics = await _with_names(broker, names, operations, turn, create=message.allow_auto_topic_creation)
    everything = message.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[MetadataResponseBroker(broker.node_id, *request.endpoint, broker.config["broker.rack"])],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if everything else OPERATIONS_NOT_ASKED_FOR,
    )


async def _asked(topics: list[MetadataRequestTopic], turn: Turn) -> tuple[_Names, _Ids]:
    """Each once: an id, if there is one, or a name."""
    names: _Names = {}
    ids: _Ids = {}
    for asked in topics:
        await turn.pause()
        if asked.topic_id == ZERO_UUID:
            names[asked.name] = None
        else:
            ids[asked.topic_id] = None
    return names, ids


def _impossible(names: _Names, ids: _Ids, version: int) -> ErrorCode:
    """v10 and v11 have a field for the id, which nobody may use. Where ids are asked for, names do not count."""
    if version < IDS_SINCE and (ids or None in names):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.UNKNOWN_SERVER_ERROR if None in names and not ids else ErrorCode.NONE


async def _refused(asked: list[MetadataRequestTopic], error: ErrorCode, turn: Turn) -> MetadataResponse:
    response = MetadataResponse(error_code=error)
    for topic in asked:
        await turn.pause()
        response.topics.append(MetadataResponseTopic(error, topic.name or "", topic.topic_id))
    return response


async def _all(broker: "Broker", operations: int, turn: Turn) -> list[MetadataResponseTopic]:
    topics = []
    for name in sorted(broker.topics.by_name):
        await turn.pause()
        topic = _known(broker, name)
        if topic is not None:  # or deleted meanwhile
            topics.append(await _there(broker, topic, operations))
    return topics


async def _with_ids(broker: "Broker", ids: _Ids, operations: int, turn: Turn) -> list[MetadataResponseTopic]:
    topics = []
    for topic_id in ids:
        await turn.pause()
        topic = broker.topics.by_id.get(topic_id)
        if topic is None:
            topics.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
        else:
            topics.append(await _there(broker, topic, operations))
    return topics


async def _with_names(
    broker: "Broker", names: _Names, operations: int, turn: Turn, *, create: bool
) -> list[MetadataResponseTopic]:
    topics, missing = [], []
    for name in names:
        await turn.pause()
        assert name is not None
        topic = _known(broker, name)
        if topic is None:
            not_there = _not_there(name, operations)
            topics.append(not_there)
            if not_there.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name not in NEVER_AUTO_CREATED:
                missing.append(not_there)
        else:
            topics.append(await _there(broker, topic, operations))
    config = broker.config
    too_many = len(missing) * config["num.partitions"] > PARTITIONS_AT_ONCE_MAX
    if create and config["auto.create.topics.enable"] and not too_many:
        for not_there in missing:
            await turn.pause()
            not_there.error_code = _begun(broker, not_there.name or "")
    return topics


def _known(broker: "Broker", name: str) -> Topic | None:
    topic = broker.topics.by_name.get(name)
    if topic is not None and broker.news and broker.news.get(topic.topic_id, 0) > time.monotonic():
        return None
    return topic


def _begun(broker: "Broker", name: str) -> ErrorCode:
    """The topic is being made, or why it cannot be."""
    if name not in broker.topics.by_name:
        try:
            topic = broker.catalogue.create(name, -1, {})
        except EXPECTED as error:
            return error_of(error)[0]
        now = time.monotonic()
        while broker.news and broker.news[oldest := next(iter(broker.news))] <= now:
            del broker.news[oldest]
        broker.news[topic.topic_id] = now + NEWS_AFTER_SECONDS
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _not_there(name: str, operations: int) -> MetadataResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except RequestError as refused:
        error = refused.code
    return MetadataResponseTopic(
        error, name, ZERO_UUID, is_internal=name in _INTERNAL_TO_KAFKA, topic_authorized_operations=operations
    )


async def _there(broker: "Broker", topic: Topic, operations: int) -> MetadataResponseTopic:
    with contextlib.suppress(*EXPECTED):  # what could not be made is told with the partitions
        await broker.topic_made(topic.name)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, topic, index) for index in range(topic.partition_count)],
        topic_authorized_operations=operations,
    )


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
