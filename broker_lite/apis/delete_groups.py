"""DeleteGroups, key 42. Groups without members, and all that they have committed."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED
from pylog.broker_lite.group_coordinator import code_of
from pylog.broker_lite.protocol.delete_groups import (
    SPEC,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: DeleteGroupsRequest, request: Request) -> DeleteGroupsResponse:
    asked = dict.fromkeys(message.groups_names)  # one that is named twice is deleted once
    results, turn = [], Turn()
    for group_id in asked:
        results.append(await _delete(broker, group_id))
        await turn.pause()
    return DeleteGroupsResponse(results=results)


async def _delete(broker: "Broker", group_id: str) -> DeletableGroupResult:
    try:
        await broker.coordinator_ready()
        broker.coordinator_of(group_id)
        await broker.coordinator.reply_of(broker.groups.delete(group_id))
    except EXPECTED as error:
        return DeletableGroupResult(group_id, code_of(error))
    return DeletableGroupResult(group_id)


API = declared(SPEC, handle)
