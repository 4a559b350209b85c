"""FindCoordinator, key 10. v4: many keys at once. One node: it coordinates every group."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.listeners import Endpoint
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.find_coordinator import (
    GROUP,
    SPEC,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: FindCoordinatorRequest, request: Request) -> FindCoordinatorResponse:
    keys = message.coordinator_keys if request.version >= 4 else [message.key]
    try:
        if message.key_type != GROUP:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                "This broker coordinates groups; transactions and share groups are not supported yet.",
            )
        await broker.coordinator_ready()
        found, turn = [], Turn()
        for key in keys:
            found.append(_coordinator(broker, key, request.endpoint))
            await turn.pause()
    except EXPECTED as error:
        code, text = error_of(error)
        found = [_none(key, code, text) for key in keys]
    if request.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    return FindCoordinatorResponse(
        error_code=found[0].error_code,
        error_message=found[0].error_message or ErrorCode.NONE.name,  # so does Kafka say that nothing is wrong
        node_id=found[0].node_id,
        host=found[0].host,
        port=found[0].port,
    )


def _coordinator(broker: "Broker", key: str, endpoint: Endpoint) -> Coordinator:
    try:
        broker.coordinator_of(key)
    except RequestError as error:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    return Coordinator(key, broker.node_id, *endpoint, error_message="")


def _none(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key, node_id=-1, port=-1, error_code=code, error_message=text)


API = declared(SPEC, handle)
