"""DescribeProducers, key 61. The idempotent producers that a partition remembers."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, error_of
from pylog.broker_lite.protocol.describe_producers import (
    SPEC,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: DescribeProducersRequest, request: Request) -> Steps[DescribeProducersResponse]:
    """A partition that is named again is described once more, but not looked at again."""
    response = DescribeProducersResponse()
    known: dict[tuple[str, int], DescribeProducersPartitionResponse] = {}
    for topic in message.topics:
        result = DescribeProducersTopicResponse(topic.name)
        response.topics.append(result)
        for index in topic.partition_indexes:
            if (topic.name, index) not in known:
                known[topic.name, index] = _producers(broker, topic.name, index)
            result.partitions.append(known[topic.name, index])
            yield
        yield
    return response


def _producers(broker: "Broker", topic: str, index: int) -> DescribeProducersPartitionResponse:
    try:
        log = broker.partition(topic, index).log
    except EXPECTED as error:
        return DescribeProducersPartitionResponse(index, *error_of(error))
    return DescribeProducersPartitionResponse(
        index,
        active_producers=[
            ProducerState(
                view.producer_id,
                view.epoch,
                view.last_sequence,
                view.last_timestamp_ms,
                view.coordinator_epoch,
                view.transaction_start,
            )
            for view in log.producers.views()
        ],
    )


API = declared(SPEC, handle)
