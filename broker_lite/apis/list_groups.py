"""ListGroups, key 16. v4: of some states. v5: of some types."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.list_groups import SPEC, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: ListGroupsRequest, request: Request) -> ListGroupsResponse:
    broker.lose_offline_groups()
    return ListGroupsResponse(groups=broker.groups.listed(message.states_filter, message.types_filter))


API = declared(SPEC, handle)
