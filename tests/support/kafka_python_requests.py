"""Requests and answers in kafka-python's own messages, over a plain socket: its codec judges ours."""

import socket
import struct
from typing import Any
from uuid import UUID

import kafka.protocol.metadata as metadata


def ask(connection: socket.socket, request: Any, response: Any, version: int) -> Any:
    request.with_header(correlation_id=version, client_id="versions")
    connection.sendall(request.encode(version=version, header=True, framed=True))
    received = connection.makefile("rb")
    (size,) = struct.unpack(">i", received.read(4))
    answered = response.decode(received.read(size), version=version, header=True)
    assert answered.header.correlation_id == version
    header_bytes = 5 if response.flexible_version_q(version) and response is not metadata.ApiVersionsResponse else 4
    answered._header = None
    assert len(answered.encode(version=version)) == size - header_bytes  # it has read all there was
    return answered


def topic_id_of(connection: socket.socket, topic: str) -> UUID:
    topics = [metadata.MetadataRequest.MetadataRequestTopic(name=topic, version=12)]
    request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False, version=12)
    (found,) = ask(connection, request, metadata.MetadataResponse, 12).topics
    topic_id: UUID = found.topic_id
    return topic_id
