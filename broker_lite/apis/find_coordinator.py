"""FindCoordinator, key 10. v4: many keys at once. One node: it coordinates every group."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.find_coordinator import (
    GROUP,
    SPEC,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: FindCoordinatorRequest, request: Request) -> FindCoordinatorResponse:
    try:
        if message.key_type != GROUP:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, "This broker coordinates groups; transactions are not supported yet."
            )
        await broker.coordinator_ready()
    except EXPECTED as error:
        code, text = error_of(error)
        refused = Coordinator(node_id=-1, port=-1, error_code=code, error_message=text)
        return _response(refused, message, request.version)
    return _response(Coordinator(node_id=broker.node_id, host=broker.host, port=broker.port), message, request.version)


def _response(found: Coordinator, message: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    if version >= 4:
        coordinators = [
            Coordinator(key, found.node_id, found.host, found.port, found.error_code, found.error_message)
            for key in message.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=coordinators)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


API = declared(SPEC, handle)
