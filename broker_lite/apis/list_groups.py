"""ListGroups, key 16. v4: of some states. v5: of some types."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.list_groups import SPEC, ListGroupsRequest, ListGroupsResponse
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: ListGroupsRequest, request: Request) -> Steps[ListGroupsResponse]:
    states, types = set[str](), set[str]()
    for wanted, given in ((states, message.states_filter), (types, message.types_filter)):
        for name in given:
            wanted.add(name.strip().lower())
            yield
    broker.lose_offline_groups()
    return ListGroupsResponse(groups=broker.groups.listed(states, types))


API = declared(SPEC, handle)
