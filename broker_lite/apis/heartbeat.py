"""Heartbeat, key 12. A member is there, and learns whether it is to join again."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED
from pylog.broker_lite.group_coordinator import code_of
from pylog.broker_lite.protocol.heartbeat import SPEC, HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: HeartbeatRequest, request: Request) -> HeartbeatResponse:
    try:
        outcome = broker.groups.heartbeat(message, broker.coordinator.now())
        broker.coordinator.settle(outcome)  # it writes nothing: there is nothing to wait for
    except EXPECTED as error:
        return HeartbeatResponse(error_code=code_of(error))
    return outcome.reply


API = declared(SPEC, handle)
