"""SyncGroup, key 14. The answer follows when the group's leader has assigned."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED
from pylog.broker_lite.group_coordinator import code_of
from pylog.broker_lite.protocol.sync_group import SPEC, SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: SyncGroupRequest, request: Request) -> SyncGroupResponse:
    coordinator = broker.coordinator
    try:
        response: SyncGroupResponse = await coordinator.answer_to(
            lambda token: broker.groups.sync(message, request.version, token, coordinator.now())
        )
    except EXPECTED as error:
        return SyncGroupResponse(error_code=code_of(error))
    return response


API = declared(SPEC, handle)
