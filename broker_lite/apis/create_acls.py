"""CreateAcls, key 30. As of a Kafka without an authorizer: there is nobody who would look at them."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.apis.describe_acls import NO_AUTHORIZER
from pylog.broker_lite.protocol.create_acls import SPEC, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: CreateAclsRequest, request: Request) -> Steps[CreateAclsResponse]:
    response = CreateAclsResponse()
    for _ in message.creations:
        response.results.append(AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
        yield
    return response


API = declared(SPEC, handle)
