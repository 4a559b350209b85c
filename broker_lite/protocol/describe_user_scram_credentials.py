"""DescribeUserScramCredentials, key 50. v0: flexible."""

from pylog.broker_lite.protocol.schema import array, int8, int16, int32, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class UserName:
    name: str = string()


@message
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = array(UserName, null_since=0)


@message
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@message
class UserScramCredentials:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null_since=0)
    results: list[UserScramCredentials] = array(UserScramCredentials)


SPEC = ApiSpec(
    "DescribeUserScramCredentials",
    50,
    0,
    0,
    0,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
