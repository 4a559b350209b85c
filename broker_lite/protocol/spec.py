"""One API of the protocol: its key, the versions spoken here, and its two messages."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pylog.broker_lite.protocol import schema
from pylog.broker_lite.protocol.allowance import allowance_of
from pylog.broker_lite.protocol.wire import Buffer

Request = TypeVar("Request")
Response = TypeVar("Response")

NEVER_FLEXIBLE = 1 << 15  # no version is


@dataclass(frozen=True, slots=True)
class Api:
    """What every API has; Produce and Fetch, whose messages are coded by hand, have no more.

    `advertised_min` differs from `version_min` only where old clients must see a wider range. From `ids_since` on
    topics are named by their ids."""

    name: str
    key: int
    version_min: int
    version_max: int
    flexible_since: int
    advertised_min: int | None = field(default=None, kw_only=True)
    ids_since: int | None = field(default=None, kw_only=True)

    @property
    def names_max(self) -> int:
        """The newest version in which topics have names."""
        return self.version_max if self.ids_since is None else self.ids_since - 1

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since


@dataclass(frozen=True, slots=True)
class ApiSpec(Api, Generic[Request, Response]):
    """An API whose messages are declared.

    Bytes behind a message are ignored, as Kafka does: librdkafka 2.16 leaves three behind a Metadata request."""

    request: type[Request]
    response: type[Response]

    def decode_request(self, body: Buffer, version: int) -> Request:
        flexible = self.is_flexible(version)
        return schema.decode(self.request, body, version, flexible=flexible, allowance=allowance_of(body))[0]

    def decode_response(self, body: Buffer, version: int) -> Response:
        return schema.decode(self.response, body, version, flexible=self.is_flexible(version))[0]

    def encode_request(self, request: Request, version: int) -> bytearray:
        out = bytearray()
        schema.encode(request, out, version, flexible=self.is_flexible(version))
        return out

    def encode_response(self, response: Response, version: int, bytes_max: int = schema.ANY_SIZE) -> bytearray:
        """LargeMessage if it has more than about `bytes_max`."""
        out = bytearray()
        schema.encode(response, out, version, flexible=self.is_flexible(version), bytes_max=bytes_max)
        return out
