"""DescribeGroups, key 15. v6: a group that is not there is an error; before, it is Dead."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError
from pylog.broker_lite.group_coordinator import code_of
from pylog.broker_lite.protocol.describe_groups import (
    SPEC,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS = 3, 6, 8, 10, 11  # Kafka's numbers of operations
# Everybody may do everything.
_OPERATIONS = 1 << _READ | 1 << _DELETE | 1 << _DESCRIBE | 1 << _DESCRIBE_CONFIGS | 1 << _ALTER_CONFIGS


async def handle(broker: "Broker", message: DescribeGroupsRequest, request: Request) -> DescribeGroupsResponse:
    try:
        await broker.coordinator_ready()
    except EXPECTED as error:
        return DescribeGroupsResponse(groups=[DescribedGroup(code_of(error), group_id=one) for one in message.groups])
    groups, turn = [], Turn()
    known: dict[str, DescribedGroup] = {}  # one that is named again is told of again, as by Kafka, not made again
    for group_id in message.groups:
        if group_id not in known:
            known[group_id] = group = _describe(broker, group_id, request.version)
            if message.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = _OPERATIONS
        groups.append(known[group_id])
        await turn.pause()
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: "Broker", group_id: str, version: int) -> DescribedGroup:
    try:
        broker.coordinator_of(group_id)
    except RequestError as error:
        return DescribedGroup(error.code, error.message, group_id)
    return broker.groups.describe(group_id, version)


API = declared(SPEC, handle)
