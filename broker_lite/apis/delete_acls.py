"""DeleteAcls, key 31. As of a Kafka without an authorizer: there are none."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.apis.describe_acls import NO_AUTHORIZER
from pylog.broker_lite.protocol.delete_acls import SPEC, DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: DeleteAclsRequest, request: Request) -> Steps[DeleteAclsResponse]:
    response = DeleteAclsResponse()
    for _ in message.filters:
        response.filter_results.append(DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
        yield
    return response


API = declared(SPEC, handle)
