"""From a frame to the API that answers it, and from its answer to a frame."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request
from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.apis import api_versions
from pylog.broker_lite.connection import Answer, Parts
from pylog.broker_lite.listeners import Endpoint
from pylog.broker_lite.protocol.framing import API_VERSIONS_KEY, read_request_header, write_response_header
from pylog.broker_lite.protocol.wire import I32, MalformedFrame, skip_tags
from pylog.storage.log import FileSlice

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def answer(broker: "Broker", endpoint: Endpoint, frame: memoryview, client_host: str) -> Answer:
    """`endpoint` is what a client that came in here is told to connect to."""
    header = read_request_header(frame)
    key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
    api = API_BY_KEY.get(key)
    if api is None:
        raise MalformedFrame(f"API {key} is not implemented, nor advertised")
    spec = api.spec
    if not spec.version_min <= version <= spec.version_max:
        if key == API_VERSIONS_KEY:  # how a newer client learns which versions it may use
            return _framed([api_versions.unsupported_version()], key, correlation_id, flexible=False)
        raise MalformedFrame(f"{spec.name} v{version}; supported are {spec.version_min} to {spec.version_max}")
    flexible = spec.is_flexible(version)
    start = skip_tags(frame, header.body_start) if flexible else header.body_start
    body = api.answer(broker, Request(version, header.client_id, client_host, frame[start:], endpoint))
    if body is None:
        return None
    if isinstance(body, list):
        return _framed(body, key, correlation_id, flexible=flexible)
    return _framed_later(body, key, correlation_id, flexible=flexible)


async def _framed_later(
    body: Awaitable[Parts | None], key: int, correlation_id: int, *, flexible: bool
) -> Parts | None:
    parts = await body
    return None if parts is None else _framed(parts, key, correlation_id, flexible=flexible)


def _framed(body: Parts, key: int, correlation_id: int, *, flexible: bool) -> Parts:
    head = bytearray(4)
    write_response_header(head, key, correlation_id, flexible=flexible)
    size = sum(part.length if isinstance(part, FileSlice) else len(part) for part in body) + len(head) - 4
    I32.pack_into(head, 0, size)
    return [head, *body]
