"""JoinGroup, key 11. The answer follows when the group's next generation begins."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED
from pylog.broker_lite.group_coordinator import code_of
from pylog.broker_lite.machines.group_outcome import Client
from pylog.broker_lite.protocol.join_group import PROTOCOL_NAME_NULL_SINCE, SPEC, JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: JoinGroupRequest, request: Request) -> JoinGroupResponse:
    client = Client(request.client_id or "", request.client_host)
    coordinator = broker.coordinator
    try:
        await broker.coordinator_ready()
        response: JoinGroupResponse = await coordinator.answer_to(
            lambda token: broker.groups.join(message, request.version, client, token, coordinator.now())
        )
    except EXPECTED as error:
        name = None if request.version >= PROTOCOL_NAME_NULL_SINCE else ""
        return JoinGroupResponse(error_code=code_of(error), protocol_name=name, member_id=message.member_id)
    return response


API = declared(SPEC, handle)
