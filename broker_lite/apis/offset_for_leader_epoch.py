"""OffsetForLeaderEpoch, key 23. A client that knows an epoch of its last record asks how far that epoch goes here."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, error_of
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.offset_for_leader_epoch import (
    SPEC,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(
    broker: "Broker", message: OffsetForLeaderEpochRequest, request: Request
) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in message.topics:
        result = OffsetForLeaderTopicResult(topic.topic)
        response.topics.append(result)
        for asked in topic.partitions:
            result.partitions.append(_end(broker, topic.topic, asked))
            yield
        yield
    return response


def _end(broker: "Broker", topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.partition(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
    except EXPECTED as error:
        return EpochEndOffset(error_of(error)[0], asked.partition)
    log = partition.log
    known = 0 <= asked.leader_epoch <= partition.leader_epoch
    if known and (asked.leader_epoch == partition.leader_epoch or not log.epochs.entries):
        # also where nothing was written in it yet
        return EpochEndOffset(ErrorCode.NONE, asked.partition, asked.leader_epoch, log.log_end_offset)
    epoch, end_offset = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    return EpochEndOffset(ErrorCode.NONE, asked.partition, epoch, end_offset)


API = declared(SPEC, handle)
