"""DescribeAcls, key 29. As of a Kafka without an authorizer: everybody may do everything."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.describe_acls import SPEC, DescribeAclsRequest, DescribeAclsResponse
from pylog.broker_lite.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

NO_AUTHORIZER = "No authorizer is there: everybody may do everything."


def handle(broker: "Broker", message: DescribeAclsRequest, request: Request) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


API = declared(SPEC, handle)
