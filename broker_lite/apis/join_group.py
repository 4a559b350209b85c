"""JoinGroup, key 11. The answer follows when the group's next generation begins."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError
from pylog.broker_lite.group_coordinator import NAME_BYTES_MAX, check_name, code_of
from pylog.broker_lite.machines.group_outcome import Client
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.join_group import PROTOCOL_NAME_NULL_SINCE, SPEC, JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

PROTOCOLS_MAX = 1000  # that a member can do; they are compared with everybody's, in one go
_UNIQUE_BYTES = 37  # of a member's id: a hyphen and a UUID


async def handle(broker: "Broker", message: JoinGroupRequest, request: Request) -> JoinGroupResponse:
    client = Client(request.client_id or "", request.client_host)
    coordinator = broker.coordinator
    try:
        _check_names(message, client)
        await broker.coordinator_ready()
        response: JoinGroupResponse = await coordinator.answer_to(
            lambda token: broker.groups.join(message, request.version, client, token, coordinator.now())
        )
    except EXPECTED as error:
        name = None if request.version >= PROTOCOL_NAME_NULL_SINCE else ""
        return JoinGroupResponse(error_code=code_of(error), protocol_name=name, member_id=message.member_id)
    return response


def _check_names(message: JoinGroupRequest, client: Client) -> None:
    check_name(message.group_id, ErrorCode.INVALID_GROUP_ID)
    for name in (message.group_instance_id, client.client_id):  # the member's id is made of it
        check_name(name, ErrorCode.INVALID_REQUEST, NAME_BYTES_MAX - _UNIQUE_BYTES)
    if len(message.protocols) > PROTOCOLS_MAX:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"{len(message.protocols)} protocols; {PROTOCOLS_MAX} are allowed."
        )
    for name in (message.protocol_type, *(protocol.name for protocol in message.protocols)):
        check_name(name, ErrorCode.INVALID_REQUEST)


API = declared(SPEC, handle)
