"""One API of the broker: what it speaks, and the function that answers it."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pylog.broker_lite.connection import Answer, Parts
from pylog.broker_lite.listeners import Endpoint
from pylog.broker_lite.protocol import spec as protocol
from pylog.broker_lite.protocol.spec import ApiSpec

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

Req = TypeVar("Req")
Resp = TypeVar("Resp")


class Request(NamedTuple):
    version: int
    client_id: str | None
    client_host: str
    body: memoryview
    endpoint: Endpoint = Endpoint("", 0)  # where this client finds the broker


@dataclass(frozen=True, slots=True)
class Api:
    spec: protocol.Api
    answer: Callable[["Broker", Request], Answer]


def declared(spec: ApiSpec[Req, Resp], handle: Callable[["Broker", Req, Request], Resp | Awaitable[Resp]]) -> Api:
    """An API whose messages are declared: decode, handle, encode."""

    def answer(broker: "Broker", request: Request) -> Answer:
        message = spec.decode_request(request.body, request.version)
        response = handle(broker, message, request)
        if inspect.isawaitable(response):
            return _later(broker, response, request.version)
        return _encoded(broker, response, request.version)

    async def _later(broker: "Broker", response: Awaitable[Resp], version: int) -> Parts:
        return _encoded(broker, await response, version)

    def _encoded(broker: "Broker", response: Resp, version: int) -> Parts:
        if broker.requests is not None:
            broker.requests.note_errors(spec.key, response)
        return [spec.encode_response(response, version)]

    return Api(spec, answer)
