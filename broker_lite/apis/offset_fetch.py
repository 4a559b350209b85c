"""OffsetFetch, key 9. v2: all topics, where none is named. v8: many groups at once. v10: topics by id."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.machines.topics import CONSUMER_OFFSETS, Topic
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.offset_fetch import (
    IDS_SINCE,
    SPEC,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pylog.broker_lite.protocol.wire import ZERO_UUID
from pylog.broker_lite.turns import Steps, Turn, finished

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_NO_OFFSET = -1


def handle(
    broker: "Broker", message: OffsetFetchRequest, request: Request
) -> Steps[OffsetFetchResponse] | Awaitable[OffsetFetchResponse]:
    if broker.coordinator.is_committed:
        return _answer(broker, message, request)
    return _answer_later(broker, message, request)


async def _answer_later(broker: "Broker", message: OffsetFetchRequest, request: Request) -> OffsetFetchResponse:
    """What could be taken back by a power cut is not told."""
    turn = Turn()
    for group_id in {message.group_id, *(group.group_id for group in message.groups)}:
        if not _is_offline(broker, group_id):
            await broker.coordinator.committed(group_id)
        await turn.pause()
    return await finished(_answer(broker, message, request))


def _answer(broker: "Broker", message: OffsetFetchRequest, request: Request) -> Steps[OffsetFetchResponse]:
    if request.version >= 8:
        groups = []
        whole: dict[str, list[OffsetFetchResponseTopic]] = {}  # all topics of groups, which are not made again
        for group in message.groups:
            if _is_offline(broker, group.group_id):
                groups.append(OffsetFetchResponseGroup(group.group_id, error_code=ErrorCode.NOT_COORDINATOR))
            else:
                by_id = request.version >= IDS_SINCE
                topics = whole.get(group.group_id) if group.topics is None else None
                if topics is None:
                    topics = yield from _topics(broker, group.group_id, group.topics, by_id=by_id)
                    if group.topics is None:
                        whole[group.group_id] = topics
                groups.append(OffsetFetchResponseGroup(group.group_id, topics))
            yield
        return OffsetFetchResponse(groups=groups)
    if _is_offline(broker, message.group_id):
        refused = yield from _refused(message.topics or [])
        return OffsetFetchResponse(error_code=ErrorCode.NOT_COORDINATOR, topics=refused)
    topics = yield from _topics(broker, message.group_id, message.topics)
    return OffsetFetchResponse(topics=topics)


def _is_offline(broker: "Broker", group: str) -> bool:
    """Where there is no `__consumer_offsets` yet, nobody has committed anything."""
    if CONSUMER_OFFSETS not in broker.topics.by_name:
        return False
    try:
        broker.coordinator_of(group)
    except RequestError:
        return True
    return False


def _refused(asked: list[OffsetFetchRequestTopic]) -> Steps[list[OffsetFetchResponseTopic]]:
    """v1 has no error code but those of the partitions."""
    code = ErrorCode.NOT_COORDINATOR
    refused = []
    for topic in asked:
        told = OffsetFetchResponseTopic(topic.name)
        refused.append(told)
        for index in topic.partition_indexes:
            told.partitions.append(OffsetFetchResponsePartition(index, _NO_OFFSET, -1, "", code))
            yield
        yield
    return refused


def _topics(
    broker: "Broker", group: str, asked: list[OffsetFetchRequestTopic] | None, *, by_id: bool = False
) -> Steps[list[OffsetFetchResponseTopic]]:
    """By id: a topic that is no longer there has none, and is left out where all are asked for."""
    known = broker.topics.by_name
    committed = broker.offsets.committed(group)
    if asked is None:
        by_topic: dict[str, list[int]] = {}
        for name, partition in sorted(committed):
            if _is_of_today(known.get(name), committed.get((name, partition))):
                by_topic.setdefault(name, []).append(partition)
            yield
        asked = [
            OffsetFetchRequestTopic(name, known[name].topic_id if name in known else ZERO_UUID, partitions)
            for name, partitions in by_topic.items()
            if name in known or not by_id
        ]
    answered = []
    for topic in asked:
        named = broker.topics.name_of(topic.topic_id.bytes if by_id else topic.name)
        partitions = []
        for partition in topic.partition_indexes:
            found = None if named is None else committed.get((named, partition))
            if found is not None and not _is_of_today(known.get(named or ""), found):
                found = None
            code = ErrorCode.UNKNOWN_TOPIC_ID if named is None else ErrorCode.NONE
            partitions.append(
                OffsetFetchResponsePartition(partition, _NO_OFFSET, -1, "", code)
                if found is None
                else OffsetFetchResponsePartition(partition, found.offset, found.leader_epoch, found.metadata)
            )
            yield
        answered.append(OffsetFetchResponseTopic(topic.name, topic.topic_id, partitions))
        yield
    return answered


def _is_of_today(topic: Topic | None, found: CommittedOffset | None) -> bool:
    """Not of another topic, of the same name, that was there before."""
    return topic is None or (found is not None and found.is_of(topic.topic_id))


API = declared(SPEC, handle)
