"""DeleteAcls, key 31. As of a Kafka without an authorizer: there are none."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.apis.describe_acls import NO_AUTHORIZER
from pylog.broker_lite.protocol.delete_acls import SPEC, DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from pylog.broker_lite.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: DeleteAclsRequest, request: Request) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER) for _ in message.filters]
    )


API = declared(SPEC, handle)
