"""ListPartitionReassignments, key 46. With one node no partition is ever on its way."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.list_partition_reassignments import (
    SPEC,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(
    broker: "Broker", message: ListPartitionReassignmentsRequest, request: Request
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()


API = declared(SPEC, handle)
