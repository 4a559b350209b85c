"""DescribeUserScramCredentials, key 50. Nobody has any: SASL is not there yet."""

from collections import Counter
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.describe_user_scram_credentials import (
    SPEC,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserScramCredentials,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(
    broker: "Broker", message: DescribeUserScramCredentialsRequest, request: Request
) -> Steps[DescribeUserScramCredentialsResponse]:
    times = Counter(user.name for user in message.users or ())
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name, count in times.items():
        response.results.append(_none_of(name, count))
        yield
    return response


def _none_of(user: str, times: int) -> UserScramCredentials:
    if times > 1:
        return UserScramCredentials(
            user, ErrorCode.DUPLICATE_RESOURCE, f"User '{user}' is there {times} times in this request."
        )
    return UserScramCredentials(user, ErrorCode.RESOURCE_NOT_FOUND, f"User '{user}' has no credentials.")


API = declared(SPEC, handle)
