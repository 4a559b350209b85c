"""LeaveGroup, key 13. The others are told to join again with their next heartbeats."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED
from pylog.broker_lite.group_coordinator import code_of
from pylog.broker_lite.protocol.leave_group import SPEC, LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: LeaveGroupRequest, request: Request) -> LeaveGroupResponse:
    coordinator = broker.coordinator
    try:
        return await coordinator.reply_of(broker.groups.leave(message, request.version, coordinator.now()))
    except EXPECTED as error:
        return LeaveGroupResponse(error_code=code_of(error))


API = declared(SPEC, handle)
