"""LeaveGroup, key 13. The others are told to join again with their next heartbeats."""

import asyncio
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED
from pylog.broker_lite.group_coordinator import code_of
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.leave_group import SPEC, LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_MEMBERS_A_TURN = 500  # they leave together


async def handle(broker: "Broker", message: LeaveGroupRequest, request: Request) -> LeaveGroupResponse:
    if len(message.members) <= _MEMBERS_A_TURN:
        return await _leave(broker, message, request.version)
    response = LeaveGroupResponse()
    for start in range(0, len(message.members), _MEMBERS_A_TURN):
        some = message.members[start : start + _MEMBERS_A_TURN]
        left = await _leave(broker, LeaveGroupRequest(message.group_id, members=some), request.version)
        if left.error_code != ErrorCode.NONE:
            return left
        response.members += left.members
        await asyncio.sleep(0)  # others have their turn
    return response


async def _leave(broker: "Broker", message: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    coordinator = broker.coordinator
    try:
        return await coordinator.reply_of(broker.groups.leave(message, version, coordinator.now()))
    except EXPECTED as error:
        return LeaveGroupResponse(error_code=code_of(error))


API = declared(SPEC, handle)
