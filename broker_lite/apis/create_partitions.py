"""CreatePartitions, key 37. Clients see the new partitions when they next ask for metadata."""

from collections import Counter
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.apis.create_topics import check_replicas
from pylog.broker_lite.errors import EXPECTED, NOTHING_WRONG, RequestError, Told, error_of
from pylog.broker_lite.machines.topics import PARTITIONS_AT_ONCE_MAX
from pylog.broker_lite.protocol.create_partitions import (
    SPEC,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.time_limit import TimeLimit
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: CreatePartitionsRequest, request: Request) -> CreatePartitionsResponse:
    limit = TimeLimit(message.timeout_ms)
    times: Counter[str] = Counter()
    added, turn = 0, Turn()
    for asked in message.topics:
        times[asked.name] += 1
        added += _added(broker, asked)
        await turn.pause()
    too_many = added > PARTITIONS_AT_ONCE_MAX
    errors: dict[str, Told] = {}
    for asked in message.topics:
        try:
            limit.check()
            if too_many:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION, f"A request may be for {PARTITIONS_AT_ONCE_MAX} partitions, not more."
                )
            if times[asked.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request twice.")
            _decide(broker, asked, message.validate_only)
            errors[asked.name] = NOTHING_WRONG
        except EXPECTED as error:
            errors[asked.name] = error_of(error)
        await turn.pause()
    for name in errors:
        if errors[name] is NOTHING_WRONG:
            try:
                await limit.wait_for(broker.topic_made(name))
            except EXPECTED as error:
                errors[name] = error_of(error)
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name, *told) for name, told in errors.items()])


def _added(broker: "Broker", asked: CreatePartitionsTopic) -> int:
    """At most: what cannot be is told with its topic."""
    topic = broker.topics.by_name.get(asked.name)
    return 0 if topic is None else max(0, asked.count - topic.partition_count)


def _decide(broker: "Broker", asked: CreatePartitionsTopic, validate_only: bool) -> None:
    added = _added(broker, asked)
    if asked.assignments is not None and added:
        if len(asked.assignments) != added:
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions are to be added, but {len(asked.assignments)} are assigned.",
            )
        for one in asked.assignments:
            check_replicas(broker, one.broker_ids)
    broker.catalogue.add_partitions(asked.name, asked.count, validate_only=validate_only)


API = declared(SPEC, handle)
