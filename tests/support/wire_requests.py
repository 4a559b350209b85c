"""One request to any broker, and its answer, in declared messages: what no client library would send can be sent."""

import socket
import struct
from typing import TypeVar

from pylog.broker_lite.protocol.framing import read_response_header, write_request_header
from pylog.broker_lite.protocol.spec import ApiSpec

Request = TypeVar("Request")
Response = TypeVar("Response")


def ask(servers: str, spec: ApiSpec[Request, Response], message: Request, version: int | None = None) -> Response:
    """In the newest version that is spoken here, if none is named."""
    version = spec.version_max if version is None else version
    flexible = spec.is_flexible(version)
    frame = bytearray()
    write_request_header(frame, spec.key, version, 1, "test", flexible=flexible)
    frame += spec.encode_request(message, version)
    host, _, port = servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _read(connection, 4))
        answer = _read(connection, size)
    _, position = read_response_header(answer, spec.key, flexible=flexible)
    return spec.decode_response(answer[position:], version)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("closed before the answer was whole")
        data += part
    return bytes(data)
