"""One API of the protocol: its key, the versions spoken here, and its two messages."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pylog.broker_lite.protocol import schema
from pylog.broker_lite.protocol.wire import Buffer, MalformedFrame

Request = TypeVar("Request")
Response = TypeVar("Response")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ApiSpec(Generic[Request, Response]):
    """`advertised_min` differs from `version_min` only where old clients must see a wider range."""

    name: str
    key: int
    version_min: int
    version_max: int
    flexible_since: int
    request: type[Request]
    response: type[Response]
    advertised_min: int | None = None

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since

    def decode_request(self, body: Buffer, version: int) -> Request:
        return _whole(self.request, body, version, self.is_flexible(version))

    def decode_response(self, body: Buffer, version: int) -> Response:
        return _whole(self.response, body, version, self.is_flexible(version))

    def encode_request(self, request: Request, version: int) -> bytearray:
        out = bytearray()
        schema.encode(request, out, version, flexible=self.is_flexible(version))
        return out

    def encode_response(self, response: Response, version: int) -> bytearray:
        out = bytearray()
        schema.encode(response, out, version, flexible=self.is_flexible(version))
        return out


def _whole(cls: type[T], body: Buffer, version: int, flexible: bool) -> T:
    decoded, position = schema.decode(cls, body, version, flexible=flexible)
    if position != len(body):
        raise MalformedFrame(f"{len(body) - position} bytes stand behind {cls.__name__} v{version}")
    return decoded
