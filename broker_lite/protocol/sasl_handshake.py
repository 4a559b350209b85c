"""SaslHandshake, key 17. v1: what follows is SaslAuthenticate. Spoken by our client only.

Behind v0 the mechanism's bytes follow bare, without any header: no broker of this decade needs that.
"""

from pylog.broker_lite.protocol.schema import array, int16, message, string
from pylog.broker_lite.protocol.spec import NEVER_FLEXIBLE, ApiSpec


@message
class SaslHandshakeRequest:
    mechanism: str = string()


@message
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(string)


SPEC = ApiSpec("SaslHandshake", 17, 1, 1, NEVER_FLEXIBLE, SaslHandshakeRequest, SaslHandshakeResponse)
