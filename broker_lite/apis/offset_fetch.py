"""OffsetFetch, key 9. v2: all topics, where none is named. v8: many groups at once."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.topics import CONSUMER_OFFSETS
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.offset_fetch import (
    SPEC,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_NO_OFFSET = -1


def handle(broker: "Broker", message: OffsetFetchRequest, request: Request) -> OffsetFetchResponse:
    if request.version >= 8:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group.group_id, error_code=ErrorCode.NOT_COORDINATOR)
                if _is_offline(broker, group.group_id)
                else OffsetFetchResponseGroup(group.group_id, _topics(broker, group.group_id, group.topics))
                for group in message.groups
            ]
        )
    if _is_offline(broker, message.group_id):
        return OffsetFetchResponse(error_code=ErrorCode.NOT_COORDINATOR, topics=_refused(message.topics or []))
    return OffsetFetchResponse(topics=_topics(broker, message.group_id, message.topics))


def _is_offline(broker: "Broker", group: str) -> bool:
    """Where there is no `__consumer_offsets` yet, nobody has committed anything."""
    if CONSUMER_OFFSETS not in broker.topics.by_name:
        return False
    try:
        broker.coordinator_of(group)
    except RequestError:
        return True
    return False


def _refused(asked: list[OffsetFetchRequestTopic]) -> list[OffsetFetchResponseTopic]:
    """v1 has no error code but those of the partitions."""
    code = ErrorCode.NOT_COORDINATOR
    return [
        OffsetFetchResponseTopic(
            topic.name,
            [OffsetFetchResponsePartition(index, _NO_OFFSET, -1, "", code) for index in topic.partition_indexes],
        )
        for topic in asked
    ]


def _topics(
    broker: "Broker", group: str, asked: list[OffsetFetchRequestTopic] | None
) -> list[OffsetFetchResponseTopic]:
    committed = broker.offsets.committed(group)
    if asked is None:
        by_topic: dict[str, list[int]] = {}
        for name, partition in sorted(committed):
            by_topic.setdefault(name, []).append(partition)
        asked = [OffsetFetchRequestTopic(name, partitions) for name, partitions in by_topic.items()]
    answered = []
    for topic in asked:
        partitions = []
        for partition in topic.partition_indexes:
            found = committed.get((topic.name, partition))
            partitions.append(
                OffsetFetchResponsePartition(partition, _NO_OFFSET, -1, "")
                if found is None
                else OffsetFetchResponsePartition(partition, found.offset, found.leader_epoch, found.metadata)
            )
        answered.append(OffsetFetchResponseTopic(topic.name, partitions))
    return answered


API = declared(SPEC, handle)
