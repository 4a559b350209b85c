"""Frames: an i32 size, a header, a body. Requests and responses each have a plain and a tagged header."""

import struct
from typing import NamedTuple

from pylog.broker_lite.protocol import wire
from pylog.broker_lite.protocol.wire import Buffer, MalformedFrame

SIZE_BYTES = 4
API_VERSIONS_KEY = 18
_HEADER = struct.Struct(">hhi")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int  # where the body begins, unless the version is flexible: then tags come first


def read_request_header(frame: Buffer) -> RequestHeader:
    """`frame` without its size. The tags of a flexible header are the caller's to skip."""
    try:
        api_key, api_version, correlation_id = _HEADER.unpack_from(frame, 0)
        client_id, position = wire.read_string(frame, _HEADER.size)
    except struct.error:
        raise MalformedFrame(f"a request of {len(frame)} bytes has no whole header") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def write_request_header(
    out: bytearray, api_key: int, api_version: int, correlation_id: int, client_id: str | None, *, flexible: bool
) -> None:
    out += _HEADER.pack(api_key, api_version, correlation_id)
    wire.write_string(out, client_id)
    if flexible:
        out.append(0)


def write_response_header(out: bytearray, api_key: int, correlation_id: int, *, flexible: bool) -> None:
    out += wire.I32.pack(correlation_id)
    if flexible and api_key != API_VERSIONS_KEY:  # a client that does not know our versions must read it
        out.append(0)


def read_response_header(frame: Buffer, api_key: int, *, flexible: bool) -> tuple[int, int]:
    """(correlation id, position of the body)."""
    if len(frame) < 4:
        raise MalformedFrame(f"a response of {len(frame)} bytes has no header")
    (correlation_id,) = wire.I32.unpack_from(frame, 0)
    if flexible and api_key != API_VERSIONS_KEY:
        return correlation_id, wire.skip_tags(frame, 4)
    return correlation_id, 4
