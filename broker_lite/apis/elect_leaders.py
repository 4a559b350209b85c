"""ElectLeaders, key 43. One node leads what it can lead: there is nothing to elect."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.elect_leaders import (
    PREFERRED,
    SPEC,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: ElectLeadersRequest, request: Request) -> Steps[ElectLeadersResponse]:
    is_known = message.election_type in (PREFERRED, UNCLEAN) or message.topic_partitions == []
    if message.topic_partitions is None:
        # Of all partitions those are told that an election would have changed.
        results = [ReplicaElectionResult(name) for name in sorted(broker.topics.by_name)] if is_known else []
    else:
        results = []
        for topic in message.topic_partitions:
            result = ReplicaElectionResult(topic.topic)
            results.append(result)
            for index in topic.partitions:
                result.partition_result.append(_result(broker, topic.topic, index, message.election_type))
                yield
            yield
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _result(broker: "Broker", topic: str, index: int, election_type: int) -> PartitionResult:
    if election_type not in (PREFERRED, UNCLEAN):
        return PartitionResult(index, ErrorCode.INVALID_REQUEST, f"There is no election of type {election_type}.")
    if not broker.exists(topic, index):
        return PartitionResult(
            index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic '{topic}'."
        )
    if broker.is_online(topic, index):
        return PartitionResult(index, ErrorCode.ELECTION_NOT_NEEDED, "The only replica leads.")
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    if election_type == UNCLEAN:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return PartitionResult(index, code, "The only replica is offline.")


API = declared(SPEC, handle)
