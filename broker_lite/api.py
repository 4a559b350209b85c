"""One API of the broker: what it speaks, and the function that answers it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import GeneratorType
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from pylog.broker_lite.connection import Answer, Parts
from pylog.broker_lite.listeners import Endpoint
from pylog.broker_lite.protocol import spec as protocol
from pylog.broker_lite.protocol.schema import LargeMessage
from pylog.broker_lite.protocol.spec import ApiSpec
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.broker_lite.turns import COLLECTOR, LARGE_BYTES, Steps, aside, begun, finished

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

ANSWER_BYTES_MAX = 512 << 20  # about: a request may name the same thing a million times, and is told of it each time

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


def declared(
    spec: ApiSpec[Req, Resp], handle: Callable[["Broker", Req, Request], Resp | Steps[Resp] | Awaitable[Resp]]
) -> Api:
    """An API whose messages are declared: decode, handle, encode. What is large is decoded and encoded by a thread; for
    all else there is no task but where the handler waits, or needs more than a turn."""

    def answer(broker: "Broker", request: Request) -> Answer:
        if len(request.body) > LARGE_BYTES:
            return _large(broker, request._replace(body=memoryview(bytes(request.body))))
        return _answered(broker, spec.decode_request(request.body, request.version), request)

    async def _large(broker: "Broker", request: Request) -> Parts:
        with COLLECTOR.mostly_among_new():
            message = await aside(spec.decode_request, request.body, request.version)
            answered = _answered(broker, message, request)
            return answered if isinstance(answered, list) else await answered

    def _answered(broker: "Broker", message: Req, request: Request) -> Parts | Awaitable[Parts]:
        response = handle(broker, message, request)
        if type(response) is spec.response:
            return _encoded(broker, response, request.version)
        if type(response) is GeneratorType:
            is_done, result = begun(response)
            if is_done:
                return _encoded(broker, cast(Resp, result), request.version)
            response = finished(response)
        return _later(broker, cast(Awaitable[Resp], response), request.version)

    async def _later(broker: "Broker", response: Awaitable[Resp], version: int) -> Parts:
        encoded = _encoded(broker, await response, version)
        return encoded if isinstance(encoded, list) else await encoded

    def _encoded(broker: "Broker", response: Resp, version: int) -> Parts | Awaitable[Parts]:
        try:
            out = spec.encode_response(response, version, LARGE_BYTES)
        except LargeMessage:
            return _encoded_aside(broker, response, version)
        if broker.requests is not None:
            broker.requests.note_errors(spec.key, response)
        return [out]

    async def _encoded_aside(broker: "Broker", response: Resp, version: int) -> Parts:
        with COLLECTOR.mostly_among_new():
            try:
                out = await aside(spec.encode_response, response, version, ANSWER_BYTES_MAX)
            except LargeMessage:
                raise MalformedFrame(
                    f"its answer would have more than {ANSWER_BYTES_MAX} bytes (ANSWER_BYTES_MAX)"
                ) from None
            if broker.requests is not None:
                broker.requests.note_counted(spec.key, await aside(broker.requests.counted, response))
            return [out]

    return Api(spec, answer)
