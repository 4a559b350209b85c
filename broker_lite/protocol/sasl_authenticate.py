"""SaslAuthenticate, key 36. v1: session lifetime. v2: flexible. Spoken by our client only."""

from pylog.broker_lite.protocol.schema import data, int16, int64, message, string
from pylog.broker_lite.protocol.spec import ApiSpec


@message
class SaslAuthenticateRequest:
    auth_bytes: bytes = data()

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest([hidden])"  # it may hold a password


@message
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(None)
    auth_bytes: bytes = data()
    session_lifetime_ms: int = int64(since=1)


SPEC = ApiSpec("SaslAuthenticate", 36, 0, 2, 2, SaslAuthenticateRequest, SaslAuthenticateResponse)
